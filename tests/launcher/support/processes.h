// Runs a program from a test, and finds processes that it left behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/process/child.h"

namespace dstrain {

// Seconds that no operation of these tests takes, even on a loaded machine.
inline constexpr double kForever = 240;

// Waits until `done` returns true. Returns false if it does not within `seconds`.
bool wait_until(const std::function<bool()>& done, double seconds = kForever);

// A program under test, and what it has written.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& command, const Environment& added);
  // Everything written so far, standard output and error together.
  const std::string& text();
  bool wrote(const std::string& part);
  pid_t pid() const { return child_.pid(); }
  // Waits for its end. Returns the exit status, or 128 + n if signal n ended it; -1 after `seconds`, which only a
  // program that never ends reaches.
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

// Returns the processes with `token` as a word of their command line, without zombies.
std::vector<pid_t> processes_with(const std::string& token);

}  // namespace dstrain
