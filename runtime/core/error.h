// Errors that reach the user. Stands on fmt; everything else stands on it.
// The type decides the exit status: UserError 1 (input or configuration), RunError 2 (a failure
// while running). A message says what was expected, what came, where, and what to do.
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

// Something failed while running (I/O, a lost rank, a non-finite loss). Exit status 2.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A RunError whose cause is another rank: it died, hung, or stopped the run. Exit status 2.
class PeerError : public RunError {
 public:
  using RunError::RunError;
};

// A broken promise inside dstrain itself (a bug, never the user's doing). Exit status 2.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

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
