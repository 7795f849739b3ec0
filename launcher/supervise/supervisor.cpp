#include "launcher/supervise/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/output/rank_output.h"
#include "launcher/placement/ranges_text.h"
#include "launcher/process/read_pipe.h"
#include "launcher/process/stop_signals.h"
#include "launcher/process/stop_text.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/supervise/board_view.h"
#include "launcher/supervise/rank_watch.h"
#include "launcher/supervise/run_ending.h"
#include "runtime/comm/rendezvous/peer_process.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"

namespace dstrain {
namespace {

constexpr int kTickMs = 20;
constexpr int64_t kMs = 1'000'000;
// Between the first fault and the choice of the root cause.
constexpr int64_t kSettle = 150 * kMs;
constexpr int64_t kSettleSeveralHosts = 1200 * kMs;  // each host reports once a second
// After the ranks are told to end. The command ends by itself when they have.
constexpr int64_t kEndCommand = 4000 * kMs;
constexpr int64_t kReleaseTimeout = 6000 * kMs;
constexpr int64_t kCommandStateInterval =
    500 * kMs;  // between checks of whether the command is stopped
// By how much the processes that get one signal may show its effects out of order.
constexpr int64_t kSameSignal = 500 * kMs;
constexpr size_t kKeptOutput = 8192;  // newest bytes of what the command itself writes

// Returns the first line that tells what is wrong. In Open MPI's messages, lines that begin with '[' name the place in
// its sources, and lines of dashes are frames.
std::string telling_line(std::string_view text) {
  std::string first;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" -\t\r") == std::string_view::npos) continue;
    if (!line.starts_with('[')) return std::string(line);
    if (first.empty()) first = line;
  }
  return first;
}

// Returns the lines of a text, each after a line break and two blanks, without empty lines.
std::string indented(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines += fmt::format("\n  {}", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class Watch {
 public:
  explicit Watch(SupervisedRun& run)
      : can_finish_(run.hosts.empty()),
        signals_(run.board, StopSignals::Note::on_standard_error,
                 StopSignals::Second::is_remembered, [this] { return can_finish_.load(); }),
        board_(run.board),
        several_hosts_(!run.hosts.empty()),
        end_(several_hosts_ ? kSettleSeveralHosts : kSettle),
        ranks_(several_hosts_ ? std::move(run.hosts) : this_machine(run.board), run.timeouts),
        output_({.ranks = run.board.ranks(),
                 .hosts = run.host_of_rank,
                 .output = run.output,
                 .error = run.error,
                 .time_stamps = run.time_stamps}) {
    if (!several_hosts_) {
      for (auto& variable : link_environment(run.board, output_.address()))
        run.environment.push_back(std::move(variable));
      for (auto& variable : progress_environment(run.error))
        run.environment.push_back(std::move(variable));
    }
    // The rank starter acts on this process's signals alone, and ranks on no signal. mpirun ends by one.
    const auto stop_signal = several_hosts_ ? Child::StopSignal::usual : Child::StopSignal::ignored;
    if (run.command.empty())
      command_.emplace(run.body, run.environment, stop_signal);
    else
      command_.emplace(run.command, run.environment, Child::Pipes::one, stop_signal);
    name_ = run.starter;
    starter_log_ = run.starter_log;
    command_process_ = PeerProcess(command_->pid());
  }

  RunReport run() {
    while (true) {
      wait();
      handle_signals();
      forward();
      const bool ended = command_->ended().has_value();
      ranks_.update();
      if (ended) {
        if (ended_ns_ == 0) ended_ns_ = monotonic_ns();
        if (!ranks_.any_alive()) break;
      }
      react();
    }
    ranks_.choose_root_cause();
    release_hosts();
    finish_output();
    return report();
  }

 private:
  static std::vector<std::unique_ptr<HostView>> this_machine(const RankBoard& board) {
    std::vector<std::unique_ptr<HostView>> all;
    all.push_back(std::make_unique<BoardView>(board, first_numbers(board.ranks()), ""));
    return all;
  }

  // Releases the hosts, and waits until nothing of the run is left there and all output of ranks has arrived.
  void release_hosts() {
    ranks_.end();
    const int64_t end = monotonic_ns() + kReleaseTimeout;
    do {
      ranks_.update();
      forward();
    } while (!ranks_.ended() && monotonic_ns() < end && ::poll(nullptr, 0, kTickMs) == 0);
  }

  // Waits until the output is written, or the user sends a further stop signal.
  void finish_output() {
    output_.finish();
    const int stop = board_.stop_request();
    while (!output_.wait_written(kTickMs) && signals_.second() == 0 &&
           board_.stop_request() == stop) {
    }
  }

  void wait() const {
    std::array<pollfd, 2> inputs{{{output_.ready(), POLLIN, 0}, {command_->output(), POLLIN, 0}}};
    // A pipe whose writers have ended is always ready, and so is not polled.
    const nfds_t count = output_closed_ ? 1 : 2;
    ::poll(inputs.data(), count, kTickMs);
  }

  void handle_signals() {
    if (several_hosts_ && board_.stop_request() != 0 && !std::exchange(stop_passed_on_, true)) {
      stop_ns_ = monotonic_ns();
      ranks_.request_stop(board_.stop_request());
    }
    if (const int64_t traces = board_.trace_requests();
        several_hosts_ && traces > traces_passed_on_) {
      traces_passed_on_ = traces;
      ranks_.request_trace();
    }
    if (stopped_by_ != 0) return;
    if (!can_finish_ && ranks_.all_running()) can_finish_ = true;
    stopped_by_ = signals_.at_once() != 0 ? signals_.at_once() : signals_.second();
    if (stopped_by_ == 0) return;
    failed_before_stop_ = end_.begun();
    ranks_.choose_root_cause();  // ranks that end from here on do so because of the signal
    end_.begin(monotonic_ns() - kEndCommand);
  }

  void forward() {
    ranks_.forward_output([this](int rank, StandardStream stream, std::string_view text) {
      output_.add(rank, stream, text);
    });
    output_.forward();
    read_available(command_->output(), [this](std::string_view text) {
      said_ += text;
      if (said_.size() > kKeptOutput) said_.erase(0, said_.size() - kKeptOutput);
    });
    pollfd pipe{command_->output(), 0, 0};
    output_closed_ = ::poll(&pipe, 1, 0) > 0 && (pipe.revents & POLLHUP) != 0;
  }

  // Returns whether the command has been stopped (SIGSTOP) for too long.
  bool command_stopped(int64_t now) {
    if (now - last_state_check_ns_ < kCommandStateInterval) return !stopped_starter_.empty();
    // If this process was suspended, the command may have been suspended with it.
    if (now - last_state_check_ns_ > 2 * kCommandStateInterval) command_stopped_since_ = 0;
    last_state_check_ns_ = now;
    if (ended_ns_ != 0 || !command_process_.stopped())
      command_stopped_since_ = 0;
    else if (command_stopped_since_ == 0)
      command_stopped_since_ = now;
    else if (now - command_stopped_since_ >= Timeouts().suspended)
      stopped_starter_ =
          fmt::format("{} (pid {}) is stopped (as by SIGSTOP)", name_, command_->pid());
    return !stopped_starter_.empty();
  }

  // Chooses the root cause of a fault, and then ends the ranks and the command step by step.
  void react() {
    const int64_t now = monotonic_ns();
    if (!end_.begun()) {
      const bool fault = ranks_.has_fault() || ended_ns_ != 0 || command_stopped(now);
      if (fault && fault_ns_ == 0) fault_ns_ = now;
      if (!end_.settled(fault, ended_ns_ == 0 && ranks_.only_peer_failures(), now)) return;
      ranks_.choose_root_cause();
      end_.begin(now);
    }
    if (end_.kills_ranks(now) && ranks_.any_alive()) {
      ranks_.kill_all();
      killed_ranks_ = true;
    }
    if (end_.lasts(kEndCommand, now) && !std::exchange(asked_to_end_, true))
      command_->signal(SIGTERM);
    if (end_.gives_up(now)) command_->signal(SIGKILL);
  }

  RunReport report() {
    RunReport report = report_without_stop();
    if (stopped_by_ == 0 && report.exit_status == 2 && stop_reached_starters()) {
      if (const int stopped = ranks_.stopped(); stopped != 0) return {128 + stopped, ""};
      const int signal = board_.stop_request();
      return {
          128 + signal, "", {}, stopped_at_once(signal, fmt::format("which {} got, too", name_))};
    }
    if (stopped_by_ == 0) return report;
    return {
        128 + stopped_by_,
        failed_before_stop_ ? report.error : "",
        {},
        signals_.at_once() != 0 ? stopped_before_steps(stopped_by_) : stopped_at_once(stopped_by_)};
  }

  // Returns whether the run failed because a stop signal also reached mpirun, its daemons or their connections, which then
  // end the ranks at once. A rank that fails or crashes while it stops is a failure nevertheless.
  bool stop_reached_starters() const {
    if (!several_hosts_ || board_.stop_request() == 0 || ranks_.any_out_of_memory()) return false;
    if (fault_ns_ != 0 && stop_ns_ - fault_ns_ > kSameSignal) return false;
    if (said_.find(" exited on signal ") != std::string::npos || !stopped_starter_.empty())
      return false;
    return !ranks_.root_cause() || ranks_.root_cause_follows_starters();
  }

  RunReport report_without_stop() {
    const int status = *command_->ended();
    if (WIFSIGNALED(status) && !asked_to_end_ && !ranks_.root_cause_is_agent())
      return {2, fmt::format("{} was ended by {}; its ranks were stopped", name_,
                             signal_text(WTERMSIG(status)))};
    if (const std::string early = ended_unseen(); !early.empty()) return {2, early};
    if (!stopped_starter_.empty()) return {2, stopped_starter_};
    if (ranks_.root_cause())
      return {ranks_.exit_status(), ranks_.report(ending(status)), ranks_.lost_hosts()};
    if (ranks_.all_done() && status == 0) {
      const int stopped = ranks_.stopped();
      return {stopped == 0 ? 0 : 128 + stopped, ""};
    }
    const std::string unfinished = ranks_.first_unfinished();
    return {2, fmt::format("{} ended with exit status {} {}{}{}", name_, WEXITSTATUS(status),
                           unfinished.empty() ? "after all ranks were done"
                                              : fmt::format("before {} was done", unfinished),
                           said_text(), ranks_.lacks())};
  }

  // Returns what the command wrote, for the end of an error: all of it, or one line and the file that has the rest.
  std::string said_text() const {
    if (said_.empty()) return "";
    if (starter_log_.empty()) return fmt::format(":{}", indented(said_));
    bool written = true;
    try {
      write_file(starter_log_, said_);
    } catch (const RunError&) {
      written = false;
    }
    return fmt::format(": {}{}", telling_line(said_),
                       written ? fmt::format(" (its whole output is in {})", starter_log_) : "");
  }

  // Returns what the command says about a rank that ended before it had joined; empty if it says nothing like it. Ranks
  // that vanish after that do so because the command stops them.
  std::string ended_unseen() const {
    // "process rank 3 with PID 4711 on node n2 exited on signal 9 (Killed)", as Open MPI says it.
    constexpr std::string_view kBegin = "process rank ";
    const size_t begin = said_.find(kBegin), end = said_.find(')', begin);
    if (end == std::string::npos || (ranks_.root_cause() && !ranks_.root_cause_vanished()))
      return "";
    const std::string said = said_.substr(begin, end + 1 - begin);
    const int rank = std::atoi(said.c_str() + kBegin.size());
    if (said.find(" exited on signal ") == std::string::npos || rank >= board_.ranks() ||
        ranks_.has_joined(rank))
      return "";
    return fmt::format("{} before it had begun{}", said.substr(std::strlen("process ")),
                       ranks_.lacks());
  }

  // Returns how the rank that vanished ended, as far as the command tells. The command's status is that of the first
  // rank that failed. If this may be one that the supervisor killed, the status counts only if the command's text names
  // the rank.
  std::string ending(int status) const {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    const bool is_certain =
        !killed_ranks_ ||
        said_.find(fmt::format("rank {} ", ranks_.root_cause()->rank.rank)) != std::string::npos;
    if (code > 128 && code < 128 + NSIG && is_certain)
      return ending_text(W_EXITCODE(0, code - 128));
    if (code > 0 && code <= 128) return ending_text(W_EXITCODE(code, 0));
    return "ended unexpectedly";
  }

  // Ranks that do not run yet have no step to finish. Read by the thread that receives signals.
  std::atomic<bool> can_finish_;
  StopSignals signals_;
  RankBoard& board_;
  bool several_hosts_;
  RunEnding end_;
  RankWatch ranks_;
  RankOutput output_;
  std::optional<Child> command_;
  std::string name_;
  std::string said_;  // what the command itself wrote
  std::string starter_log_;
  PeerProcess command_process_;
  std::string stopped_starter_;  // the error, once the command has been stopped for too long
  int64_t command_stopped_since_ = 0, last_state_check_ns_ = 0;
  bool output_closed_ = false;
  bool asked_to_end_ = false;
  bool killed_ranks_ = false;
  bool stop_passed_on_ = false;
  int64_t traces_passed_on_ = 0;  // requests for traces
  int stopped_by_ = 0;            // the signal of the second request
  bool failed_before_stop_ = false;
  int64_t stop_ns_ = 0, fault_ns_ = 0;  // when a stop request and a fault were first seen
  int64_t ended_ns_ = 0;                // when the command ended
};

}  // namespace

RunReport Supervisor::run() {
  return Watch(run_).run();
}

}  // namespace dstrain
