#include "tests/launcher/support/terminal.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>

namespace dstrain {

TerminalProgram::TerminalProgram(const RunFolder& folder, const std::string& options,
                                 const std::string& term)
    : TerminalProgram(
          folder, CommandLine{DSTRAIN_PROGRAM " --config c.json " + folder.token() + " " + options},
          term) {}

TerminalProgram::TerminalProgram(const RunFolder& folder, const CommandLine& line,
                                 const std::string& term) {
  const std::string command = "cd " + folder.root.string() + " && exec " + line.words;
  const std::string temporary = folder.path("tmp");
  winsize size{};
  size.ws_col = 80;
  pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ == 0) {
    ::setenv("TMPDIR", temporary.c_str(), 1);
    ::setenv("TERM", term.c_str(), 1);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  REQUIRE(pid_ > 0);
  ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
}

TerminalProgram::~TerminalProgram() {
  close_terminal();
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

const std::string& TerminalProgram::read() {
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; terminal_ >= 0 && (n = ::read(terminal_, buffer.data(), buffer.size())) > 0;)
    text_.append(buffer.data(), static_cast<size_t>(n));
  return text_;
}

void TerminalProgram::type(const std::string& text) const {
  REQUIRE(::write(terminal_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

bool TerminalProgram::shows(const std::string& text, int times) {
  for (int wait = 0; wait < 6000; ++wait) {
    int count = 0;
    read();
    for (size_t at = 0; (at = text_.find(text, at)) != std::string::npos; at += text.size())
      ++count;
    if (count >= times) return true;
    ::usleep(10'000);
  }
  return false;
}

void TerminalProgram::resize(int columns) const {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  REQUIRE(::ioctl(terminal_, TIOCSWINSZ, &size) == 0);
}

void TerminalProgram::close_terminal() {
  if (terminal_ >= 0) ::close(terminal_);
  terminal_ = -1;
}

int TerminalProgram::wait(double seconds) {
  int status = 0;
  ended_ = wait_until([&] { return read(), ::waitpid(pid_, &status, WNOHANG) == pid_; }, seconds);
  read();
  if (!ended_) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dstrain
