// Running a program from a test, and finding what it left behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/child.h"

namespace dstrain {

// Waits until `done` says so; false after `seconds`.
bool wait_until(const std::function<bool()>& done, double seconds);

// A program under test with all it has written so far.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& command, const Environment& added);
  // Everything written so far, standard output and error together.
  const std::string& text();
  bool wrote(const std::string& part);
  pid_t pid() const { return child_.pid(); }
  // Waits for its end: the exit status, or 128 + n where signal n ended it; -1 after `seconds`.
  int wait(double seconds = 30);

 private:
  Child child_;
  std::string text_;
};

// Processes that have `token` as a word of their command line, zombies not counted.
std::vector<pid_t> processes_with(const std::string& token);

}  // namespace dstrain
