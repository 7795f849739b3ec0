#include "launcher/ranks/rank_starter.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

// After a failure the other ranks get SIGTERM a second later. By then the supervisor has found the root cause and
// killed them: a rank that SIGTERM ended at once, before it could take the signal, would look like the cause.
constexpr int64_t kPatience = 1'000'000'000;
// When SIGKILL follows, after a failure or a signal to this process.
constexpr int64_t kGrace = 2'000'000'000;
constexpr timespec kPollInterval{0, 100'000'000};
constexpr std::array kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGUSR1};

struct StartedRank {
  pid_t pid = -1;
  bool ended = false;
};

class RankStarter {
 public:
  RankStarter(const std::function<int()>& body, const RankBoard* board)
      : body_(body), board_(board), starter_(::getpid()), parent_(::getppid()) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGCHLD);
    for (const int number : kPassedOn) sigaddset(&signals_, number);
    ::sigprocmask(SIG_BLOCK, &signals_, &usual_);
  }

  int run(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) return run_rank(rank, ranks);
      if (pid < 0) {
        const std::string reason = system_reason(errno);
        signal_all(SIGKILL);
        fail_run("cannot start rank {}: {}", rank, reason);
      }
      ranks_.push_back({pid});
      if (board_ != nullptr) board_->slot(rank).pid.store(pid);
    }
    while (collect()) {
      siginfo_t info{};
      const int number = ::sigtimedwait(&signals_, &info, &kPollInterval);
      if (number > 0 && number != SIGCHLD && is_order(info)) {
        note_end(128 + number);
        signal_all(number);
      }
      if (ending_since_ != 0) end_ranks(monotonic_ns() - ending_since_);
    }
    return status_;
  }

 private:
  // Runs in the new process, which stays in the starter's process group, so that a signal to the group reaches it.
  int run_rank(int rank, int ranks) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != starter_) return 1;  // the starter ended before prctl()
    ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
    ::setenv(kWorldSizeVariable, std::to_string(ranks).c_str(), 1);
    ::setenv(kWorldRankVariable, std::to_string(rank).c_str(), 1);
    return body_();
  }

  // Returns whether a signal is for this process to act on. One that another process than the parent sent, as pkill and
  // systemd do to all processes of a run, has reached the parent too, which lets the ranks finish their step.
  bool is_order(const siginfo_t& info) const {
    return info.si_code != SI_USER || info.si_pid == parent_;
  }

  // Collects the ranks that have ended. Returns whether any is left.
  bool collect() {
    bool any = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      StartedRank& rank = ranks_[r];
      int status = 0;
      if (!rank.ended && ::waitpid(rank.pid, &status, WNOHANG) == rank.pid) {
        rank.ended = true;
        if (status != 0) note_failure(static_cast<int>(r), status);
      }
      any = any || !rank.ended;
    }
    return any;
  }

  // Only the first failure counts: later ones are of ranks that were told to end.
  void note_failure(int rank, int status) {
    if (ending_since_ != 0) return;
    const bool killed = WIFSIGNALED(status);
    fmt::print(stderr, "process rank {} with PID {} exited {} {}{}\n", rank,
               ranks_[static_cast<size_t>(rank)].pid, killed ? "on signal" : "with status",
               killed ? WTERMSIG(status) : WEXITSTATUS(status),
               killed ? fmt::format(" ({})", strsignal(WTERMSIG(status))) : "");
    note_end(killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    failed_ = true;
  }

  // Ends the ranks that are left `elapsed` nanoseconds after the first failure or signal.
  void end_ranks(int64_t elapsed) {
    if (elapsed > kGrace) return signal_all(SIGKILL);
    if (failed_ && elapsed > kPatience) {
      failed_ = false;  // once
      signal_all(SIGTERM);
    }
  }

  void note_end(int status) {
    if (ending_since_ != 0) return;
    status_ = status;
    ending_since_ = monotonic_ns();
  }

  void signal_all(int number) const {
    for (const StartedRank& rank : ranks_)
      if (!rank.ended) ::kill(rank.pid, number);
  }

  const std::function<int()>& body_;
  const RankBoard* board_;
  pid_t starter_, parent_;
  sigset_t signals_{}, usual_{};
  std::vector<StartedRank> ranks_;
  int status_ = 0;
  int64_t ending_since_ = 0;
  bool failed_ = false;  // a rank has failed, and the others have not been told
};

}  // namespace

int start_ranks_here(int ranks, const std::function<int()>& rank, const RankBoard* board) {
  return RankStarter(rank, board).run(ranks);
}

}  // namespace dstrain
