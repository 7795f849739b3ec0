// Errors that reach the user. The type decides the exit status: 1 for UserError (input or configuration), 2
// for all others. A message says what was expected, what was found, where, and what to do.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace dstrain {

// The user's input or configuration is wrong; nothing has been started or written. Exit status 1.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A failure while running (I/O, a lost rank, a non-finite loss). Exit status 2.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A secondary failure: another rank died, hung, or stopped the run. Exit status 2.
class PeerError : public RunError {
 public:
  using RunError::RunError;
};

// A violated invariant of dstrain itself, which is a bug. Exit status 2.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Throw an error whose message is formatted by fmt.
template <class... Args>
[[noreturn]] void fail_user(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_run(fmt::format_string<Args...> format, Args&&... args) {
  throw RunError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_peer(fmt::format_string<Args...> format, Args&&... args) {
  throw PeerError(fmt::format(format, std::forward<Args>(args)...));
}

// Checks an internal invariant in every build type; throws InternalError with the message.
template <class... Args>
void check(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace dstrain
