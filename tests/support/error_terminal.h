// ErrorTerminal: a pseudo-terminal in place of standard error.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/without_variable.h"

namespace dstrain {

// Makes standard error a terminal of so many columns during its lifetime.
class ErrorTerminal {
 public:
  explicit ErrorTerminal(int columns = 100)
      : master_(::posix_openpt(O_RDWR | O_NOCTTY)), before_(::dup(STDERR_FILENO)) {
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(slave >= 0);
    ::dup2(slave, STDERR_FILENO);
    ::close(slave);
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
    resize(columns);
  }
  ErrorTerminal(const ErrorTerminal&) = delete;
  ErrorTerminal& operator=(const ErrorTerminal&) = delete;
  ~ErrorTerminal() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(master_);
  }

  void resize(int columns) const {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    REQUIRE(::ioctl(master_, TIOCSWINSZ, &size) == 0);
  }
  // Returns what was written since the last call.
  std::string text() const {
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(master_, bytes.data(), bytes.size());
    return n > 0 ? std::string(bytes.data(), static_cast<size_t>(n)) : "";
  }

 private:
  WithoutVariable term_{"TERM"};  // the terminal is not a dumb one
  int master_, before_;
};

}  // namespace dstrain
