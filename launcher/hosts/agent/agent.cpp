#include "launcher/hosts/agent/agent.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "launcher/connection/line_channel.h"
#include "launcher/connection/network.h"
#include "launcher/connection/silence.h"
#include "launcher/hosts/agent/guard.h"
#include "launcher/hosts/agent/launcher_link.h"
#include "launcher/hosts/agent/output_backlog.h"
#include "launcher/hosts/agent/starter_watch.h"
#include "launcher/hosts/checks/output_probe.h"
#include "launcher/hosts/checks/pair_check.h"
#include "launcher/hosts/checks/temporary_room.h"
#include "launcher/hosts/open_mpi.h"
#include "launcher/nodes/node_address.h"
#include "launcher/output/rank_output.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/process_limits.h"
#include "launcher/process/child.h"
#include "launcher/process/failure.h"
#include "launcher/process/read_pipe.h"
#include "launcher/process/stop_signals.h"
#include "launcher/ranks/dead_runs.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/ranks/run_directory.h"
#include "launcher/ranks/run_processes.h"
#include "launcher/supervise/board_view.h"
#include "launcher/supervise/rank_reporter.h"
#include "launcher/supervise/report_messages.h"
#include "runtime/core/error.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr int kTickMs = 20;
constexpr size_t kMostUnsent = size_t{1}
                               << 20;  // bytes; further output of ranks waits in the backlog

// The ranks of this host: their board, their output pipes, and the reports about them.
class Ranks {
 public:
  // `before_sending`: as RankReporter's.
  Ranks(const std::string& run, int world, const std::vector<int>& ranks,
        std::function<void()> before_sending)
      : directory_(run),
        board_(RankBoard::create(world)),
        view_(board_, ranks, fmt::format("{}={}", kRunVariable, run)),
        reporter_(view_, std::move(before_sending)),
        starter_(run),
        room_(run),
        pipes_(ranks.size()),
        backlogs_(ranks.size()) {
    std::vector<std::string> pipes(static_cast<size_t>(world));
    for (size_t i = 0; i < ranks.size(); ++i)
      pipes[static_cast<size_t>(ranks[i])] = pipes_[i].text();
    directory_.publish(board_.address(), output_address(pipes));
  }

  const RankBoard& board() const { return board_; }

  // Sends a report after every change, and once a second if the launching process receives (`listens`).
  void report(LineChannel& channel, bool listens) {
    starter_.update(view_.ranks());
    const StarterReport& starter = starter_.report();
    reporter_.report(
        channel, listens,
        {fmt::format("{} {} {} {} {}", starter.pid, starter.gone, starter.suspended_since != 0,
                     starter.awaits, room_.lack()),
         {{"starter", to_message(starter, monotonic_ns())}, {"lack", to_json_text(room_.lack())}}});
  }

  // Reads what ranks have written, so that they never wait, and sends it if the launching process receives (`listens`).
  void forward(LineChannel& channel, bool listens) {
    for (size_t i = 0; i < pipes_.size(); ++i)
      for (const StandardStream stream : {StandardStream::output, StandardStream::error})
        forward(i, stream, channel, listens);
  }

  void kill() { view_.kill_all(); }

 private:
  // The unsent output of a rank.
  struct RankBacklogs {
    OutputBacklog output{kMostUnsent}, error{kMostUnsent};
    OutputBacklog& of(StandardStream stream) {
      return stream == StandardStream::output ? output : error;
    }
  };

  void forward(size_t i, StandardStream stream, LineChannel& channel, bool listens) {
    OutputBacklog& backlog = backlogs_[i].of(stream);
    const auto send = [&](std::string_view text) {
      channel.send({{"say", "output"},
                    {"rank", view_.ranks()[i].rank},
                    {"error", stream == StandardStream::error},
                    {"text", to_json_text(text)}});
    };
    const auto free = [&] { return listens && channel.unsent() < kMostUnsent; };
    if (free() && !backlog.empty()) send(backlog.take());
    read_available(pipes_[i].of(stream).read.get(), [&](std::string_view bytes) {
      if (free() && backlog.empty()) {
        backlog.passed(bytes);
        send(bytes);
      } else {
        backlog.add(bytes);
      }
    });
  }

  RunDirectory directory_;
  RankBoard board_;
  BoardView view_;
  RankReporter reporter_;
  StarterWatch starter_;
  RoomWatch room_;
  std::vector<RankPipes> pipes_;  // of each rank, in their order
  std::vector<RankBacklogs> backlogs_;
};

class Agent {
 public:
  Agent(const AgentHooks& hooks, bool here, GuardedRun& guarded)
      : hooks_(hooks),
        guarded_(guarded),
        channel_(STDIN_FILENO, STDOUT_FILENO),
        node_(node_process()),
        link_(here || node_.pid() != 0),
        requests_(RankBoard::create(1)),
        signals_(requests_, StopSignals::Note::none, StopSignals::Second::is_remembered),
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
    if (!run_.empty() && !ranks_) remove_run_files(run_);
    const bool lost = ranks_ && !ended_;
    if (ranks_) ranks_->forward(channel_, true);
    ranks_.reset();
    if (lost) clear_lost_run(run_);
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
      pollfd input{STDIN_FILENO, POLLIN, 0};
      ::poll(&input, 1, kTickMs);
      const bool open = channel_.receive([this](const json& message) {
        silence_.heard();
        handle(message);
      });
      if (!channel_.fault().empty())
        fail_run("the launching process cannot be understood: {}", channel_.fault());
      silence_.update(monotonic_ns());
      if (!open || launcher_is_lost()) return;
      require_node();
      report_signals();
      answer_late();
      const bool listens = silence_.ns() <= most_silence_ns_;
      // Sent even if the launching process does not receive: its kernel acknowledges it, which launcher_is_lost()
      // checks.
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

  // Throws RunError if the dstrain that was started by hand has ended, with which everything on this host ends.
  void require_node() const {
    if (node_.pid() != 0 && !node_.alive())
      fail_run("the dstrain that was started there by hand (pid {}) has ended", node_.pid());
  }

  // Tells the launching process about SIGUSR2, and how many stop signals this one has received: who sends one to all
  // processes of a host means the run.
  void report_signals() {
    if (const int64_t traces = requests_.trace_requests(); traces > told_traces_) {
      told_traces_ = traces;
      channel_.send({{"say", "trace"}});
    }
    const int first = requests_.stop_request(), second = signals_.second();
    const int count = second != 0 ? 2 : first != 0 ? 1 : 0;
    if (count <= std::exchange(told_stops_, count)) return;
    channel_.send({{"say", "stop"}, {"signal", second != 0 ? second : first}, {"count", count}});
  }

  // Silence alone is not enough: the launching process may be suspended, while its machine still answers.
  bool launcher_is_lost() {
    const int64_t now = monotonic_ns();
    if (silence_.ns() <= most_silence_ns_ || now - last_link_check_ns_ < kHeartbeat) return false;
    last_link_check_ns_ = now;
    return !link_.answers();
  }

  void handle(const json& m) {
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
      listener_.emplace(m.at("key").get<std::string>(), m.at("port").get<int>(),
                        m.at("address").get<std::string>());
      channel_.send({{"say", "listening"}, {"port", listener_->port()}});
    } else if (what == "meet") {
      check(listener_.has_value(), "an agent that does not listen was told to meet others");
      listener_->meet(m.at("peers").get<std::vector<PeerAddress>>());
    } else if (what == "watch") {
      listener_.reset();
      ranks_.emplace(run_, m.at("world").get<int>(), m.at("ranks").get<std::vector<int>>(),
                     [this] { require_node(); });
      channel_.send({{"say", "watching"}});
    } else if (what == "stop") {
      if (ranks_) ranks_->board().request_stop(m.at("signal").get<int>());
    } else if (what == "trace") {
      if (ranks_) ranks_->board().request_trace();
    } else if (what == "kill") {
      if (ranks_) ranks_->kill();
    } else if (what == "end") {
      ended_ = true;
    }  // "alive" needs no answer
  }

  void hello(const json& m) {
    run_ = m.at("run").get<std::string>();
    guarded_.set(run_);
    most_silence_ns_ = m.at("silence_ns").get<int64_t>();
    clear_dead_runs(run_);
    const MemoryOffer offer = available_memory();
    const ProcessLimits limits = process_limits();
    channel_.send({{"say", "hello"},
                   {"version", DSTRAIN_VERSION},
                   {"program", file_checksum("/proc/self/exe", "the program")},
                   {"host", to_json_text(host_name())},
                   {"identity", to_json_text(host_identity())},
                   {"time", static_cast<double>(std::time(nullptr))},
                   {"memory", offer.bytes},
                   {"memory_source", offer.source},
                   {"cores", std::thread::hardware_concurrency()},
                   {"open_files", limits.open_files},
                   {"processes", limits.processes.count},
                   {"processes_source", to_json_text(limits.processes.source)},
                   {"addresses", own_addresses()},
                   {"temporary", temporary_room(run_)}});
  }

  // Finds an answer in a thread of its own, so that the agent keeps sending meanwhile.
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

  // Sends the answers that have been found.
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
  GuardedRun& guarded_;
  LineChannel channel_;
  PeerProcess node_;  // that runs this agent in the place of an ssh server
  LauncherLink link_;
  RankBoard requests_;  // receives the signals of this process
  StopSignals signals_;
  int told_stops_ = 0;
  int64_t told_traces_ = 0;
  Silence silence_;  // of the launching process
  int64_t most_silence_ns_ = kLongestSilence;
  int64_t last_link_check_ns_ = 0;
  std::string run_;
  std::shared_ptr<Late> late_;
  std::shared_ptr<Probe> probe_ = std::make_shared<Probe>();
  std::optional<PairCheck> listener_;
  std::optional<Ranks> ranks_;
  int64_t last_alive_ns_ = 0;
  bool ended_ = false;
};

}  // namespace

int run_agent(const AgentHooks& hooks, bool here) {
  return run_guarded([&](GuardedRun& run) {
    receive_stop_signals();
    ::signal(SIGHUP, SIG_DFL);  // else StopSignals would take it for one that nohup ignores
    return Agent(hooks, here, run).run();
  });
}

}  // namespace dstrain
