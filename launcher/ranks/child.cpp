#include "launcher/ranks/child.h"

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
#include <map>

#include "launcher/supervise/failure.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int kCannotStart = 127;

// In the new process, where only async-signal-safe calls are allowed: it leads a group, ends with its
// parent, has no signal blocked, ends by SIGPIPE as usual, and has its streams, of which a first one below 0 is nothing to read.
void take_place(std::array<int, 3> streams, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotStart);  // it ended before the line above
  const int input = streams[0] >= 0 ? streams[0] : ::open("/dev/null", O_RDONLY);
  if (input < 0 || ::dup2(input, STDIN_FILENO) < 0 || ::dup2(streams[1], STDOUT_FILENO) < 0 ||
      ::dup2(streams[2], STDERR_FILENO) < 0)
    ::_exit(kCannotStart);
}

// The same.
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

std::vector<std::string> merged_environment(const Environment& added) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : added) all[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(fmt::format("{}={}", name, value));
  return lines;
}

std::vector<char*> exec_pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    fail_run("cannot make a pipe: {}", std::strerror(errno));
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

// Whether this is the new process.
bool Child::fork(const std::string& what) {
  pid_ = ::fork();
  if (pid_ < 0) fail_run("cannot start {}: {}", what, std::strerror(errno));
  return pid_ == 0;
}

void Child::keep_own_ends() {
  ::setpgid(pid_, pid_);  // whichever of the two comes first; it may have been exec'ed already
  output_.write = Descriptor();
  errors_.write = Descriptor();
  input_.read = Descriptor();
  ::fcntl(input_.write.get(), F_SETFL, O_NONBLOCK);
}

Child::Child(const std::vector<std::string>& command, const Environment& added, Pipes pipes) {
  std::vector<std::string> words = command;
  std::vector<std::string> environment = merged_environment(added);
  const std::vector<char*> argv = exec_pointers(words), envp = exec_pointers(environment);
  const pid_t parent = ::getpid();
  const bool three = pipes == Pipes::three;
  if (fork(command.front())) {
    take_place({three ? input_.read.get() : -1, output_.write.get(),
                three ? errors_.write.get() : output_.write.get()},
               parent);
    become(argv.data(), envp.data());
  }
  keep_own_ends();
}

Child::Child(const std::function<int()>& body, const Environment& added) {
  const pid_t parent = ::getpid();
  std::fflush(nullptr);  // or the fork would write it again
  if (fork("another process of dstrain")) {
    take_place({-1, output_.write.get(), output_.write.get()}, parent);
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
