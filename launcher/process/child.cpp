#include "launcher/process/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launcher/process/failure.h"
#include "launcher/process/stop_signals.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {
namespace {

constexpr int kCannotStart = 127;

// Returns the standard input of a child process that has none. Opened here, where an error can still be thrown.
Descriptor empty_input(const std::string& what) {
  Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (input.get() < 0)
    fail_run("cannot start {}: cannot open /dev/null: {}", what, system_reason(errno));
  return input;
}

// Prepares the new process, in which only async-signal-safe calls are allowed: its process group, its end with its
// parent, its signals, and its standard streams.
void prepare_child(std::array<int, 3> streams, pid_t parent, Child::StopSignal stop_signal) {
  if (stop_signal == Child::StopSignal::ignored) ignore_stop_signals();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotStart);  // the parent ended before prctl()
  if (::dup2(streams[0], STDIN_FILENO) < 0 || ::dup2(streams[1], STDOUT_FILENO) < 0 ||
      ::dup2(streams[2], STDERR_FILENO) < 0)
    ::_exit(kCannotStart);
}

// Becomes the program, or exits. Only async-signal-safe calls are allowed here too.
[[noreturn]] void become(char* const* argv, char* const* envp) {
  ::execve(argv[0], argv, envp);
  const char* reason = std::strerror(errno);
  for (const char* part : {"cannot start ", static_cast<const char*>(argv[0]), ": ", reason, "\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  ::_exit(kCannotStart);
}

int run_body(const std::function<int()>& body) {
  try {
    return body();
  } catch (...) {
    return report_failure();
  }
}

}  // namespace

// Returns whether this is the new process.
bool Child::fork(const std::string& what) {
  pid_ = ::fork();
  if (pid_ < 0) fail_run("cannot start {}: {}", what, system_reason(errno));
  return pid_ == 0;
}

void Child::keep_own_ends() {
  ::setpgid(pid_, pid_);  // the child process does the same: whichever comes first
  output_.write = Descriptor();
  errors_.write = Descriptor();
  input_.read = Descriptor();
  ::fcntl(input_.write.get(), F_SETFL, O_NONBLOCK);
}

Child::Child(const std::vector<std::string>& command, const Environment& added, Pipes pipes,
             StopSignal stop_signal) {
  std::vector<std::string> words = command;
  std::vector<std::string> environment = merged_environment(added);
  const std::vector<char*> argv = exec_pointers(words), envp = exec_pointers(environment);
  const pid_t parent = ::getpid();
  const bool three = pipes == Pipes::three;
  if (!three) input_.read = empty_input(command.front());
  if (fork(command.front())) {
    prepare_child(
        {input_.read.get(), output_.write.get(), three ? errors_.write.get() : output_.write.get()},
        parent, stop_signal);
    become(argv.data(), envp.data());
  }
  keep_own_ends();
}

Child::Child(const std::function<int()>& body, const Environment& added, StopSignal stop_signal) {
  const std::string what = "another process of dstrain";
  const pid_t parent = ::getpid();
  input_.read = empty_input(what);
  std::fflush(nullptr);  // else the fork would write it too
  if (fork(what)) {
    prepare_child({input_.read.get(), output_.write.get(), output_.write.get()}, parent,
                  stop_signal);
    for (const auto& [name, value] : added) ::setenv(name.c_str(), value.c_str(), 1);
    std::exit(run_body(body));
  }
  keep_own_ends();
}

Child::~Child() {
  if (pid_ <= 0 || ended()) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<int> Child::ended() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

void Child::signal(int number) {
  if (!ended()) ::kill(-pid_, number);
}

}  // namespace dstrain
