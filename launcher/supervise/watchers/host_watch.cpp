#include "launcher/supervise/watchers/host_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/connection/handshake.h"
#include "launcher/connection/message.h"
#include "launcher/connection/silence.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/process/failure.h"
#include "launcher/supervise/board_view.h"
#include "launcher/supervise/rank_reporter.h"
#include "launcher/supervise/rank_watch.h"
#include "launcher/supervise/report_messages.h"
#include "launcher/supervise/run_ending.h"
#include "launcher/supervise/watchers/job_suspension.h"
#include "launcher/supervise/watchers/peer_view.h"
#include "launcher/supervise/watchers/user_mpirun.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr int kWatchTickMs = 20;
constexpr int64_t kMillisecond = 1'000'000;
// Between the first fault and the choice of the root cause. Less than a second, after which mpirun, which notices the
// end of a rank too, ends everything and closes the output.
constexpr int64_t kWatchSettleOneHost = 150 * kMillisecond;
constexpr int64_t kWatchSettleSeveralHosts = 500 * kMillisecond;
// A watcher waits so long after the end of its ranks for the leader to learn of it.
constexpr int64_t kLastReport = 6000 * kMillisecond;
// For the watchers to meet.
constexpr int64_t kToMeet = 15'000 * kMillisecond;
// A rank that vanishes so long after a stop request was ended by whoever sent the request.
constexpr int64_t kAfterStopRequest = 300 * kMillisecond;

bool all_suspended(std::span<const RankReport> ranks) {
  return std::ranges::all_of(
      ranks, [](const RankReport& r) { return !r.alive() || r.suspended_since != 0; });
}

bool all_done(std::span<const RankReport> ranks) {
  return std::ranges::all_of(ranks, [](const RankReport& r) { return r.state == RankState::done; });
}

bool any_left(std::span<const RankReport> ranks) {
  return std::ranges::any_of(ranks, &RankReport::alive);
}

std::unique_ptr<BoardView> view_of(const RankBoard& board, const WatchTask& task) {
  const auto host = static_cast<size_t>(task.host);
  return std::make_unique<BoardView>(board, task.ranks[host], "",
                                     task.names.size() > 1 ? task.names[host] : "");
}

// The rank that started this process waits until it hears from here.
class WaitingRank {
 public:
  bool waits() const { return !released_; }
  // Lets the rank continue.
  void release() {
    if (std::exchange(released_, true)) return;
    ::close(STDOUT_FILENO);
    ::open("/dev/null", O_WRONLY);
  }

 private:
  bool released_ = false;
};

// The watcher that finds the root cause: the one on rank 0's host, or any that cannot reach it.
class LeaderWatcher {
 public:
  // Watches all hosts, or only this one (`alone`). Lets the rank continue once the watchers have met, as hosts that
  // vanish before that are not missed. The caller must keep board and rank alive.
  LeaderWatcher(const RankBoard& board, const WatchTask& task, WaitingRank& rank, bool alone)
      : board_(board),
        rank_(rank),
        advice_(mpirun_advice(::getppid())),
        pending_(task.key),
        watch_(views(task, alone), {.instruction = task.timeout_s * 1000 * kMillisecond}),
        end_(peers_.empty() ? kWatchSettleOneHost : kWatchSettleSeveralHosts) {
    if (task.listener >= 0) listener_.emplace(task.listener);
  }

  int run() {
    while (true) {
      await_watchers();
      ::poll(nullptr, 0, kWatchTickMs);
      accept_watchers();
      watch_.update();
      if (board_.stop_request() != 0 && stop_requested_ns_ == 0)
        stop_requested_ns_ = monotonic_ns();
      if (!end_.begun())
        check_faults();
      else if (enforce_end())
        break;
      if (!watch_.any_alive() && !end_.has_fault()) break;
    }
    watch_.end();
    for (int i = 0; i < 50 && !watch_.ended(); ++i) {
      ::poll(nullptr, 0, kWatchTickMs);
      watch_.update();
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

  // Connects the views of other hosts to the watchers there, which prove that they know the run's key.
  void accept_watchers() {
    if (!listener_) return;
    pending_.serve(*listener_, monotonic_ns(), [this](auto& connection, const auto& message) {
      const int64_t number = integer_member(message, "host", 0, INT_MAX);
      for (const auto& [host, peer] : peers_)
        if (host == number && !peer->connected()) return peer->connect(std::move(connection));
    });
  }

  // Lets the rank continue if all watchers have come, if the run is over, or if the time is.
  void await_watchers() {
    if (!rank_.waits()) return;
    const bool late = monotonic_ns() - begin_ns_ > kToMeet;
    for (const auto& [host, peer] : peers_) {
      if (peer->connected() || end_.begun()) continue;
      if (!late) return;
      log::warn("the watcher on {} has not come: failures of that host are not told", peer->name());
    }
    rank_.release();
  }

  void check_faults() {
    const int64_t now = monotonic_ns();
    const bool excused = suspension_.excuses(all_are_stopped(), now);
    const bool fault = watch_.has_fault() && !excused;
    if (!end_.settled(fault, watch_.only_peer_failures(), now)) return;
    watch_.choose_root_cause();
    if (!watch_.root_cause()) return;
    if (!ended_by_user())
      print_error(watch_.report("ended unexpectedly") + (is_host_silent() ? advice_ : ""));
    end_.begin(now);
    board_.order_end(watch_.exit_status());
    for (const auto& [host, peer] : peers_) peer->order_end(watch_.exit_status());
  }

  bool is_host_silent() const {
    return watch_.root_cause()->kind == RootCause::Kind::host_lost &&
           std::ranges::any_of(peers_, [](const auto& peer) { return peer.second->is_silent(); });
  }

  bool all_are_stopped() const {
    return all_suspended(own_->ranks()) && any_left(own_->ranks()) &&
           std::ranges::all_of(
               peers_, [](const auto& peer) { return all_suspended(peer.second->ranks()); });
  }

  // Returns whether the rank vanished because the user ended the run.
  bool ended_by_user() const {
    return watch_.root_cause_vanished() && stop_requested_ns_ != 0 &&
           watch_.root_cause()->rank.alive_ns - stop_requested_ns_ > kAfterStopRequest;
  }

  // Kills the ranks when their time is over. Returns whether none is left, or the watcher gives up.
  bool enforce_end() {
    const int64_t now = monotonic_ns();
    if (end_.kills_ranks(now) && !std::exchange(killed_, true)) watch_.kill_all();
    return !watch_.any_alive() || end_.gives_up(now);
  }

  const RankBoard& board_;
  WaitingRank& rank_;
  std::string advice_;  // where a host is lost
  std::optional<TcpListener> listener_;
  PendingConnections pending_;
  BoardView* own_ = nullptr;
  std::vector<std::pair<int, PeerView*>> peers_;  // by host
  RankWatch watch_;                               // owns the views
  RunEnding end_;
  JobSuspension suspension_;
  const int64_t begin_ns_ = monotonic_ns();
  int64_t stop_requested_ns_ = 0;
  bool killed_ = false;
};

// The watcher of any other host. It reports to the leader and follows its orders.
class MemberWatcher {
 public:
  // Lets the rank continue once the leader is found or given up. The caller must keep all alive.
  MemberWatcher(const RankBoard& board, const WatchTask& task, WaitingRank& rank)
      : board_(board),
        task_(task),
        rank_(rank),
        advice_(mpirun_advice(::getppid())),
        view_(view_of(board, task)),
        reporter_(*view_),
        connector_(task.addresses, task.port),
        begin_ns_(monotonic_ns()) {}

  int run() {
    while (true) {
      ::poll(nullptr, 0, kWatchTickMs);
      if (!leader_ && !connect()) return LeaderWatcher(board_, task_, rank_, true).run();
      serve();
      const int64_t now = monotonic_ns();
      if (end_.kills_ranks(now)) view_->kill_all();
      if (end_.gives_up(now)) return 2;
      if (any_left(view_->ranks()) || !leader_) continue;
      if (gone_ns_ == 0) gone_ns_ = now;
      // The leader must learn of it, and sends "end" when it has.
      if (ended_ || now - gone_ns_ >= kLastReport) return 0;
    }
  }

 private:
  // Returns false if the leader could not be reached in time.
  bool connect() {
    view_->update(false);
    // Another program may answer at one of the addresses, which then is not the leader.
    if (!handshake_)
      if (auto socket = connector_.connected()) handshake_.emplace(std::move(*socket), task_.key);
    const Handshake::State state = handshake_ ? handshake_->advance() : Handshake::State::going_on;
    if (state == Handshake::State::done) {
      leader_ = handshake_->take();
      leader_->channel.send({{"host", task_.host}});
      silence_ = Silence(monotonic_ns());
      rank_.release();
      return true;
    }
    if (state != Handshake::State::going_on) handshake_.reset();
    if (monotonic_ns() - begin_ns_ > kToMeet) {
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
    if (!leader_) return;
    reporter_.report(leader_->channel);
    silence_.update(monotonic_ns());
    const bool open = leader_->channel.receive([this](const nlohmann::json& message) {
      silence_.heard();
      handle(message);
    });
    leader_->channel.flush();
    if (ended_ || end_.begun() || all_done(view_->ranks())) return;
    if (open && silence_.ns() <= task_.silence_s * 1000 * kMillisecond) return;
    print_error(fmt::format("{} was lost: {}{}", task_.names.front(),
                            open ? fmt::format("no word from it for {} s", task_.silence_s)
                                 : "the connection to its watcher ended",
                            open ? advice_ : ""));
    order_end(2);
  }

  void handle(const nlohmann::json& m) {
    const std::string what = m.value("do", "");
    if (what == "order_end") order_end(static_cast<int>(integer_member(m, "status", 1, 255)));
    if (what == "kill") view_->kill_all();
    if (what == "end") ended_ = true;
  }

  void order_end(int status) {
    end_.begin(monotonic_ns());
    board_.order_end(status);
  }

  const RankBoard& board_;
  const WatchTask& task_;
  WaitingRank& rank_;
  std::string advice_;  // where the leader's host is lost
  std::unique_ptr<BoardView> view_;
  RankReporter reporter_;
  TcpConnector connector_;
  std::optional<Handshake> handshake_;  // with who answered
  std::unique_ptr<SocketChannel> leader_;
  RunEnding end_{0};  // the leader decides it
  int64_t begin_ns_, gone_ns_ = 0;
  Silence silence_{0};  // of the leader
  bool ended_ = false;  // the leader has sent its last message
};

}  // namespace

int watch_host(const WatchTask& task) {
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE})
    ::signal(number, SIG_IGN);
  // The kernel continues a watcher that is stopped when the rank that started it ends.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  std::optional<RankBoard> board;
  try {
    board.emplace(RankBoard::attach(task.board));
  } catch (const RunError&) {
    return 0;  // the ranks of this host have ended, and their mpirun or srun reports how
  }
  WaitingRank rank;
  return task.host == 0 ? LeaderWatcher(*board, task, rank, false).run()
                        : MemberWatcher(*board, task, rank).run();
}

}  // namespace dstrain
