// ErrorTerminal: a pseudo-terminal in place of standard error.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
  // Returns what was written since the last call. The kernel hands over what a terminal was written a little later, and
  // in parts: a byte that nothing else writes ends the text.
  std::string text() const {
    REQUIRE(::write(STDERR_FILENO, &kEndOfText, 1) == 1);
    std::string text;
    for (char byte = 0; next(byte);) {
      if (byte == kEndOfText) return text;
      text += byte;
    }
    FAIL("the terminal has only " << text << " ten seconds after the end of the text was written");
    return text;
  }

 private:
  static constexpr char kEndOfText = '\x1e';

  // Waits for a byte and reads it. Returns whether one came within ten seconds.
  bool next(char& byte) const {
    pollfd ready{.fd = master_, .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 10'000) == 1 && ::read(master_, &byte, 1) == 1;
  }

  WithoutVariable term_{"TERM"};  // the terminal is not a dumb one
  int master_, before_;
};

}  // namespace dstrain
