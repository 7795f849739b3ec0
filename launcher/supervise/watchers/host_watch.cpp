#include "launcher/supervise/watchers/host_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/hosts/agent/rank_reporter.h"
#include "launcher/hosts/messages.h"
#include "launcher/supervise/board_view.h"
#include "launcher/supervise/failure.h"
#include "launcher/supervise/rank_watch.h"
#include "launcher/supervise/watchers/peer_view.h"
#include "launcher/supervise/watchers/watch_socket.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr int kWatchTickMs = 20;
constexpr int64_t kMillisecond = 1'000'000;
// After the first sign of trouble: other signs of the same trouble come in. Not longer: mpirun, which sees a rank
// die as well, ends everything within a second, and with it the way to the terminal.
constexpr int64_t kSettleHere = 150 * kMillisecond;
constexpr int64_t kSettleOfPeers = 500 * kMillisecond;
constexpr int64_t kSettleOfWords = 3000 * kMillisecond;
// After the end has been ordered: ranks end by themselves; then force.
constexpr int64_t kForce = 1000 * kMillisecond;
constexpr int64_t kGiveUp = 6000 * kMillisecond;
// For the watchers of other hosts to connect.
constexpr int64_t kToConnect = 15'000 * kMillisecond;
// Ranks that end so long after they were asked to stop are ended by whoever asked.
constexpr int64_t kAsked = 300 * kMillisecond;

bool all_suspended(std::span<const RankReport> ranks) {
  return std::ranges::all_of(
      ranks, [](const RankReport& r) { return !r.joined() || r.gone || r.suspended_since != 0; });
}

bool all_done(std::span<const RankReport> ranks) {
  return std::ranges::all_of(ranks, [](const RankReport& r) { return r.state == RankState::done; });
}

bool any_left(std::span<const RankReport> ranks) {
  return std::ranges::any_of(ranks, [](const RankReport& r) { return r.joined() && !r.gone; });
}

std::unique_ptr<BoardView> view_of(const RankBoard& board, const WatchTask& task) {
  const auto host = static_cast<size_t>(task.host);
  return std::make_unique<BoardView>(board, task.ranks[host], "",
                                     task.names.size() > 1 ? task.names[host] : "");
}

// The watcher that finds the culprit.
class Judge {
 public:
  // Of all hosts, or of this one `alone`. The board outlives it.
  Judge(const RankBoard& board, const WatchTask& task, bool alone)
      : board_(board),
        token_(task.token),
        watch_(views(task, alone), {.instruction = task.timeout_s * 1000 * kMillisecond}) {
    if (task.listener >= 0) listener_.emplace(task.listener);
  }

  int run() {
    while (true) {
      ::poll(nullptr, 0, kWatchTickMs);
      admit();
      watch_.look();
      if (board_.stop_request() != 0 && asked_ns_ == 0) asked_ns_ = monotonic_ns();
      if (over_ns_ == 0)
        judge();
      else if (force())
        break;
      if (!watch_.any_alive() && trouble_ns_ == 0) break;
    }
    watch_.end();
    for (int i = 0; i < 50 && !watch_.ended(); ++i) {
      ::poll(nullptr, 0, kWatchTickMs);
      watch_.look();
    }
    return 0;
  }

 private:
  std::vector<std::unique_ptr<HostView>> views(const WatchTask& task, bool alone) {
    std::vector<std::unique_ptr<HostView>> all;
    for (size_t host = 0; host < task.names.size(); ++host) {
      if (static_cast<int>(host) == task.host) {
        auto own = view_of(board_, task);
        own_ = own.get();
        all.push_back(std::move(own));
      } else if (!alone) {
        auto peer = std::make_unique<PeerView>(task.names[host], task.ranks[host], task.silence_s);
        peers_.emplace_back(static_cast<int>(host), peer.get());
        all.push_back(std::move(peer));
      }
    }
    return all;
  }

  // Connections of other hosts' watchers, known by the run's token.
  void admit() {
    if (!listener_) return;
    while (auto socket = listener_->accept())
      guests_.push_back(std::make_unique<WatchLine>(std::move(*socket)));
    std::erase_if(guests_, [this](std::unique_ptr<WatchLine>& guest) {
      const bool open = guest->channel.receive();
      const auto message = guest->channel.take();
      if (!message) return !open || !guest->channel.fault().empty();
      if (message->value("token", "") != token_) return true;
      for (const auto& [host, peer] : peers_)
        if (host == message->value("host", -1) && !peer->connected())
          peer->connect(std::move(guest));
      return true;
    });
  }

  void judge() {
    if (!watch_.trouble() || job_is_suspended()) {
      trouble_ns_ = 0;
      return;
    }
    const int64_t now = monotonic_ns();
    if (trouble_ns_ == 0) trouble_ns_ = now;
    const int64_t settling = watch_.only_complaints() ? kSettleOfWords
                             : peers_.empty()         ? kSettleHere
                                                      : kSettleOfPeers;
    if (now - trouble_ns_ < settling) return;
    watch_.choose_culprit();
    if (!watch_.culprit()) return;
    if (!was_asked_for()) print_error(watch_.report("ended unexpectedly"));
    over_ns_ = now;
    board_.order_end(watch_.exit_status());
    for (const auto& [host, peer] : peers_) peer->order_end(watch_.exit_status());
  }

  // Whoever stops all ranks of a run, as a job's owner may, does not want it to end.
  bool job_is_suspended() const {
    return all_suspended(own_->ranks()) && any_left(own_->ranks()) &&
           std::ranges::all_of(
               peers_, [](const auto& peer) { return all_suspended(peer.second->ranks()); });
  }

  // A rank that vanished because the user had the run ended.
  bool was_asked_for() const {
    return watch_.culprit_vanished() && asked_ns_ != 0 &&
           watch_.culprit()->rank.alive_ns - asked_ns_ > kAsked;
  }

  // Returns whether there is nothing left to do.
  bool force() {
    const int64_t now = monotonic_ns();
    if (now - over_ns_ >= kForce && !std::exchange(killed_, true)) watch_.kill_all();
    return !watch_.any_alive() || now - over_ns_ >= kGiveUp;
  }

  const RankBoard& board_;
  std::string token_;
  std::optional<WatchListener> listener_;
  std::vector<std::unique_ptr<WatchLine>> guests_;  // who have not said yet who they are
  BoardView* own_ = nullptr;
  std::vector<std::pair<int, PeerView*>> peers_;  // with their hosts
  RankWatch watch_;                               // owns the views
  int64_t trouble_ns_ = 0, over_ns_ = 0, asked_ns_ = 0;
  bool killed_ = false;
};

// The watcher of another host than rank 0's.
class Witness {
 public:
  Witness(const RankBoard& board, const WatchTask& task)
      : board_(board),
        task_(task),
        view_(view_of(board, task)),
        reporter_(*view_),
        dialer_(task.addresses, task.port),
        begin_ns_(monotonic_ns()) {}

  int run() {
    while (true) {
      ::poll(nullptr, 0, kWatchTickMs);
      if (!line_ && !connect()) return Judge(board_, task_, true).run();
      serve();
      const int64_t now = monotonic_ns();
      if (over_ns_ != 0 && now - over_ns_ >= kForce) view_->kill_all();
      if (over_ns_ != 0 && now - over_ns_ >= kGiveUp) return 2;
      if (any_left(view_->ranks()) || !line_) continue;
      if (gone_ns_ == 0) gone_ns_ = now;
      // The judge has to learn of it, and says when it has.
      if (ended_ || now - gone_ns_ >= kGiveUp) return 0;
    }
  }

 private:
  // False once it is too late.
  bool connect() {
    view_->look(false);
    if (auto socket = dialer_.connected()) {
      line_ = std::make_unique<WatchLine>(std::move(*socket));
      line_->channel.send({{"token", task_.token}, {"host", task_.host}});
      last_word_ns_ = monotonic_ns();
    } else if (monotonic_ns() - begin_ns_ > kToConnect) {
      log::warn(
          "the watcher on {} cannot reach the one on {} at port {}: ranks here are watched, "
          "failures of other "
          "hosts are not told",
          task_.names[static_cast<size_t>(task_.host)], task_.names.front(), task_.port);
      return false;
    }
    return true;
  }

  void serve() {
    if (!line_) return;
    reporter_.report(line_->channel);
    const bool open = line_->channel.receive();
    while (const auto message = line_->channel.take()) {
      last_word_ns_ = monotonic_ns();
      obey(*message);
    }
    line_->channel.flush();
    const int64_t now = monotonic_ns();
    if (last_look_ns_ != 0 && now - last_look_ns_ > 2 * kHeartbeat) last_word_ns_ = now;
    last_look_ns_ = now;
    if (ended_ || over_ns_ != 0 || all_done(view_->ranks())) return;
    if (open && now - last_word_ns_ <= task_.silence_s * 1000 * kMillisecond) return;
    print_error(fmt::format("{} was lost: {}", task_.names.front(),
                            open ? fmt::format("no word from it for {} s", task_.silence_s)
                                 : "the connection to its watcher ended"));
    order_end(2);
  }

  void obey(const nlohmann::json& m) {
    const std::string what = m.value("do", "");
    if (what == "order_end") order_end(m.value("status", 2));
    if (what == "kill") view_->kill_all();
    if (what == "end") ended_ = true;
  }

  void order_end(int status) {
    over_ns_ = monotonic_ns();
    board_.order_end(status);
  }

  const RankBoard& board_;
  const WatchTask& task_;
  std::unique_ptr<BoardView> view_;
  RankReporter reporter_;
  WatchDialer dialer_;
  std::unique_ptr<WatchLine> line_;
  int64_t begin_ns_, last_word_ns_ = 0, last_look_ns_ = 0, over_ns_ = 0, gone_ns_ = 0;
  bool ended_ = false;  // the judge has nothing more to say
};

}  // namespace

int watch_host(const WatchTask& task) {
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) ::signal(number, SIG_IGN);
  std::optional<RankBoard> board;
  try {
    board.emplace(RankBoard::attach(task.board));
  } catch (const RunError&) {
    return 0;  // the ranks of this host ended before they could be watched: their mpirun or srun tells how
  }
  ::close(STDOUT_FILENO);  // which tells the rank that started this process to go on
  ::open("/dev/null", O_WRONLY);
  return task.host == 0 ? Judge(*board, task, false).run() : Witness(*board, task).run();
}

}  // namespace dstrain
