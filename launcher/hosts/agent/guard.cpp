#include "launcher/hosts/agent/guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launcher/connection/line_channel.h"
#include "launcher/process/stop_signals.h"
#include "launcher/ranks/dead_runs.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr size_t kRoom = 8192;  // bytes; longer than any path
constexpr timespec kGuardTick{0, 100'000'000};

// Waits for the agent. `starter` is the parent of this process: sshd, a node, or the launching process.
int wait_for_agent(pid_t agent, pid_t starter, const sigset_t& child_ended) {
  int status = 0;
  while (::waitpid(agent, &status, WNOHANG) != agent) {
    ::sigtimedwait(&child_ended, nullptr, &kGuardTick);
    // It finds that its connection has ended, and clears the host of the run.
    if (::getppid() != starter) ::kill(agent, SIGCONT);
  }
  return status;
}

// Tells the launching process, in the place of the agent, before anything is cleared here: what ends on other hosts
// because of that ends later.
void tell_of_killed_agent(int signal) {
  const std::string text = fmt::format(
      "{}\n{}\n", kCancelsLine, nlohmann::json{{"say", "killed"}, {"signal", signal}}.dump());
  // If the launching process does not read, the exit status tells it later.
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
  ::close(STDOUT_FILENO);
}

}  // namespace

GuardedRun::GuardedRun() {
  void* const memory =
      ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_run("cannot start the agent: {}", std::strerror(errno));
  text_ = static_cast<char*>(memory);
}

GuardedRun::~GuardedRun() {
  ::munmap(text_, kRoom);
}

void GuardedRun::set(const std::string& run) {
  std::copy_n(run.c_str(), std::min(run.size(), kRoom - 1), text_);
}

std::string GuardedRun::name() const {
  return {text_, ::strnlen(text_, kRoom)};
}

int run_guarded(const std::function<int(GuardedRun& run)>& agent) {
  ignore_stop_signals();
  ::signal(SIGPIPE, SIG_IGN);
  GuardedRun run;
  const pid_t starter = ::getppid();
  // The kernel continues a stopped guard when its parent ends, and a stopped agent when its guard does. On the launching
  // machine the parent is the launching process, and a Child would be killed with it before it has cleaned up.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  sigset_t child_ended, usual;
  ::sigemptyset(&child_ended);
  ::sigaddset(&child_ended, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child_ended, &usual);
  const pid_t fork = ::fork();
  if (fork < 0) fail_run("cannot start the agent: {}", std::strerror(errno));
  if (fork == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    ::sigprocmask(SIG_SETMASK, &usual, nullptr);
    return agent(run);
  }
  ::close(STDIN_FILENO);
  const int status = wait_for_agent(fork, starter, child_ended);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  tell_of_killed_agent(WTERMSIG(status));
  if (const std::string name = run.name(); !name.empty()) clear_lost_run(name);
  return 128 + WTERMSIG(status);
}

}  // namespace dstrain
