// Running a program from a test, and finding what it left behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/process/child.h"

namespace dstrain {

// Longer than anything here takes on a loaded machine, in seconds.
inline constexpr double kForever = 240;

// Waits until `done` says so; false after `seconds`.
bool wait_until(const std::function<bool()>& done, double seconds = kForever);

// A program under test with all it has written so far.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& command, const Environment& added);
  // Everything written so far, standard output and error together.
  const std::string& text();
  bool wrote(const std::string& part);
  pid_t pid() const { return child_.pid(); }
  // Waits for its end: the exit status, or 128 + n where signal n ended it; -1 after `seconds`, which are only for
  // a program that never ends.
  int wait(double seconds = kForever);

 private:
  Child child_;
  std::string text_;
};

// Returns the processes whose parent is `pid`, zombies included.
std::vector<pid_t> children_of(pid_t pid);

// Returns the process that starts the ranks of a launching process on this machine, and these ranks. Empty before they
// are there.
pid_t starter_of(pid_t launcher);
std::vector<pid_t> ranks_of(pid_t launcher);

// Processes that have `token` as a word of their command line, zombies not counted.
std::vector<pid_t> processes_with(const std::string& token);

}  // namespace dstrain
