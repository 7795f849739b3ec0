#include "launcher/hosts/agent/agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "launcher/hosts/agent/launcher_link.h"
#include "launcher/hosts/agent/output_backlog.h"
#include "launcher/hosts/agent/rank_reporter.h"
#include "launcher/hosts/agent/run_place.h"
#include "launcher/hosts/agent/starter_watch.h"
#include "launcher/hosts/channel.h"
#include "launcher/hosts/checks/output_probe.h"
#include "launcher/hosts/checks/pair_check.h"
#include "launcher/hosts/checks/preflight.h"
#include "launcher/hosts/messages.h"
#include "launcher/hosts/network.h"
#include "launcher/hosts/open_mpi.h"
#include "launcher/hosts/silence.h"
#include "launcher/output/rank_output.h"
#include "launcher/placement/machine.h"
#include "launcher/ranks/child.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/supervise/board_view.h"
#include "launcher/supervise/failure.h"
#include "runtime/core/error.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr int kTickMs = 20;
constexpr size_t kMostUnsent = size_t{1} << 20;  // more output of ranks waits in the backlog

// The ranks of this host, once they are watched.
class Ranks {
 public:
  Ranks(const std::string& run, int world, const std::vector<int>& ranks)
      : place_(run),
        board_(RankBoard::create(world)),
        view_(board_, ranks, fmt::format("{}={}", kRunVariable, run)),
        reporter_(view_),
        starter_(run),
        pipes_(ranks.size()),
        backlogs_(ranks.size()) {
    std::vector<std::string> pipes(static_cast<size_t>(world));
    for (size_t i = 0; i < ranks.size(); ++i)
      pipes[static_cast<size_t>(ranks[i])] = pipes_[i].text();
    place_.publish(board_.address(), output_address(pipes));
  }

  const RankBoard& board() const { return board_; }

  // Sends what has changed, and, where the launching process `listens`, everything once a second.
  void report(LineChannel& channel, bool listens) {
    starter_.look(view_.ranks());
    const StarterReport& starter = starter_.report();
    reporter_.report(channel, listens,
                     {fmt::format("{} {} {} {}", starter.pid, starter.gone,
                                  starter.suspended_since != 0, starter.awaits),
                      {{"starter", to_message(starter, monotonic_ns())}}});
  }

  // Reads what ranks have written, so that they never wait, and sends it where the launching process
  // `listens`.
  void forward(LineChannel& channel, bool listens) {
    for (size_t i = 0; i < pipes_.size(); ++i)
      for (const StandardStream stream : {StandardStream::output, StandardStream::error})
        forward(i, stream, channel, listens);
  }

  void kill() { view_.kill_all(); }

 private:
  // What each stream of a rank holds back.
  struct RankBacklogs {
    OutputBacklog output{kMostUnsent}, error{kMostUnsent};
    OutputBacklog& of(StandardStream stream) {
      return stream == StandardStream::output ? output : error;
    }
  };

  void forward(size_t i, StandardStream stream, LineChannel& channel, bool listens) {
    std::array<char, 8192> buffer;
    OutputBacklog& backlog = backlogs_[i].of(stream);
    const auto send = [&](std::string_view text) {
      channel.send({{"say", "output"},
                    {"rank", view_.ranks()[i].rank},
                    {"error", stream == StandardStream::error},
                    {"text", to_json_text(text)}});
    };
    const auto free = [&] { return listens && channel.unsent() < kMostUnsent; };
    if (free() && !backlog.empty()) send(backlog.take());
    const int pipe = pipes_[i].of(stream).read.get();
    for (ssize_t n = 0; (n = ::read(pipe, buffer.data(), buffer.size())) > 0;) {
      const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
      if (free() && backlog.empty()) {
        backlog.passed(bytes);
        send(bytes);
      } else {
        backlog.add(bytes);
      }
    }
  }

  RunPlace place_;
  RankBoard board_;
  BoardView view_;
  RankReporter reporter_;
  StarterWatch starter_;
  std::vector<RankPipes> pipes_;  // what ranks write, in their order
  std::vector<RankBacklogs> backlogs_;
};

class Agent {
 public:
  Agent(const AgentHooks& hooks, bool here)
      : hooks_(hooks),
        channel_(STDIN_FILENO, STDOUT_FILENO),
        link_(here),
        silence_(monotonic_ns()) {}

  int run() {
    std::string why;
    try {
      serve();
    } catch (...) {
      why = current_failure().text;
      channel_.send({{"say", "fault"}, {"text", to_json_text(why)}});
    }
    if (!run_.empty()) kill_run(run_);
    if (ranks_) ranks_->forward(channel_, true);
    ranks_.reset();
    if (ended_) channel_.send({{"say", "bye"}});
    for (int i = 0; i < 100 && channel_.unsent() > 0; ++i) {
      channel_.flush();
      ::poll(nullptr, 0, kTickMs);
    }
    return why.empty() ? 0 : 2;
  }

 private:
  void serve() {
    while (!ended_) {
      pollfd door{STDIN_FILENO, POLLIN, 0};
      ::poll(&door, 1, kTickMs);
      const bool open = channel_.receive();
      while (auto message = channel_.take()) {
        silence_.heard();
        obey(*message);
      }
      silence_.look(monotonic_ns());
      if (!open || launcher_is_lost()) return;
      answer_late();
      const bool listens = silence_.ns() <= most_silence_ns_;
      // To one that does not listen as well: the kernel there acknowledges it.
      if ((!ranks_ || !listens) && monotonic_ns() - last_alive_ns_ >= kHeartbeat) {
        last_alive_ns_ = monotonic_ns();
        channel_.send({{"say", "alive"}});
      }
      if (ranks_) {
        ranks_->report(channel_, listens);
        ranks_->forward(channel_, listens);
      }
      channel_.flush();
    }
  }

  // Silence alone is no loss: the launching process may be suspended, which its machine is not.
  bool launcher_is_lost() {
    const int64_t now = monotonic_ns();
    if (silence_.ns() <= most_silence_ns_ || now - last_link_look_ns_ < kHeartbeat) return false;
    last_link_look_ns_ = now;
    return !link_.answers();
  }

  void obey(const json& m) {
    const std::string what = m.at("do").get<std::string>();
    if (what == "hello") {
      hello(m);
    } else if (what == "input") {
      const AgentInput input{m.at("words").get<std::vector<std::string>>(),
                             m.at("directory").get<std::string>(), m.at("ranks").get<int64_t>()};
      answer_later("input", [read = hooks_.read_input, input] { return read(input); });
    } else if (what == "open_mpi") {
      answer_later("open_mpi", [] {
        const OpenMpi found = find_open_mpi();
        return json{{"orted", found.orted}, {"version", to_json_text(found.version)}};
      });
    } else if (what == "probe") {
      const auto directory = from_json_text(m.at("output").get<std::string>());
      answer_later("probe",
                   [probe = probe_, directory, run = run_, write = m.at("write").get<bool>()] {
                     if (!write) return json{{"seen", sees_probe(directory, run)}};
                     const std::lock_guard lock(probe->mutex);
                     probe->file = std::make_unique<OutputProbe>(directory, run);
                     return json{{"seen", true}};
                   });
    } else if (what == "probed") {
      const std::lock_guard lock(probe_->mutex);
      probe_->file.reset();
    } else if (what == "listen") {
      listener_.emplace(m.at("port").get<int>());
      channel_.send({{"say", "listening"}, {"port", listener_->port()}});
    } else if (what == "meet") {
      check(listener_.has_value(), "an agent that does not listen was told to meet others");
      listener_->meet(m.at("peers").get<std::vector<PeerAddress>>());
    } else if (what == "watch") {
      listener_.reset();
      ranks_.emplace(run_, m.at("world").get<int>(), m.at("ranks").get<std::vector<int>>());
      channel_.send({{"say", "watching"}});
    } else if (what == "stop") {
      if (ranks_) ranks_->board().request_stop(m.at("signal").get<int>());
    } else if (what == "kill") {
      if (ranks_) ranks_->kill();
    } else if (what == "end") {
      ended_ = true;
    }  // "alive" needs no answer
  }

  void hello(const json& m) {
    run_ = m.at("run").get<std::string>();
    most_silence_ns_ = m.at("silence_ns").get<int64_t>();
    clear_dead_runs(run_);
    const MemoryOffer offer = available_memory();
    channel_.send({{"say", "hello"},
                   {"version", DSTRAIN_VERSION},
                   {"program", file_checksum("/proc/self/exe")},
                   {"host", to_json_text(host_name())},
                   {"identity", to_json_text(host_identity())},
                   {"time", static_cast<double>(std::time(nullptr))},
                   {"memory", offer.bytes},
                   {"memory_source", offer.source},
                   {"cores", std::thread::hardware_concurrency()},
                   {"open_files", open_files_limit()},
                   {"addresses", own_addresses()}});
  }

  // Does what may take long in a thread of its own, so that the agent goes on to speak.
  void answer_later(const std::string& say, const std::function<json()>& find) {
    late_ = std::make_shared<Late>();
    std::thread([late = late_, say, find] {
      json answer;
      try {
        answer = find();
      } catch (...) {
        answer = {{"error", to_json_text(current_failure().text)}};
      }
      answer["say"] = say;
      const std::lock_guard lock(late->mutex);
      late->answer = std::move(answer);
    }).detach();
  }

  // Answers that took their time.
  void answer_late() {
    if (late_) {
      const std::lock_guard lock(late_->mutex);
      if (!late_->answer.is_null()) channel_.send(std::exchange(late_->answer, nullptr));
    }
    if (!listener_) return;
    if (const auto failed = listener_->serve())
      channel_.send({{"say", "met"}, {"failed", *failed}});
  }

  // NOLINTNEXTLINE(bugprone-exception-escape): an empty json allocates nothing
  struct Late {
    std::mutex mutex;
    json answer;
  };

  struct Probe {
    std::mutex mutex;
    std::unique_ptr<OutputProbe> file;
  };

  const AgentHooks& hooks_;
  LineChannel channel_;
  LauncherLink link_;
  Silence silence_;  // of the launching process
  int64_t most_silence_ns_ = kLongestSilence;
  int64_t last_link_look_ns_ = 0;
  std::string run_;
  std::shared_ptr<Late> late_;
  std::shared_ptr<Probe> probe_ = std::make_shared<Probe>();
  std::optional<PairCheck> listener_;
  std::optional<Ranks> ranks_;
  int64_t last_alive_ns_ = 0;
  bool ended_ = false;
};

// Goes on in a fork of this process, which tells how that ended: of a program that a signal ends ssh only says
// that it ended. In the fork nothing; in this process the exit status, 128 + n where signal n ended the fork.
std::optional<int> wait_for_fork() {
  const pid_t fork = ::fork();
  if (fork < 0) fail_run("cannot start the agent: {}", std::strerror(errno));
  if (fork == 0) return std::nullopt;
  for (const int number : {SIGHUP, SIGPIPE, SIGINT}) ::signal(number, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, 0);
  // The connection is the fork's alone.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) ::close(fd);
  int status = 0;
  while (::waitpid(fork, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int run_agent(const AgentHooks& hooks, bool here) {
  if (const auto ended = wait_for_fork()) return *ended;
  // Started on the launching machine itself it is a Child, and would die before it had tidied up.
  ::prctl(PR_SET_PDEATHSIG, 0);
  for (const int number : {SIGHUP, SIGPIPE, SIGINT}) ::signal(number, SIG_IGN);
  return Agent(hooks, here).run();
}

}  // namespace dstrain
