// Child: starts, reads and ends a child process, which is another program or a fork of this process. The child process
// leads a process group of its own, so that a terminal's Ctrl-C does not reach it. It writes to pipes, and the kernel
// kills it when this process ends for any reason. Invariant: the child process does not outlive its object.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/descriptor.h"
#include "launcher/process/environment.h"

namespace dstrain {

class Child {
 public:
  // The pipes between this process and the child process. `one`: standard output and standard error share a pipe, and
  // standard input is empty. `three`: each of the three has a pipe.
  enum class Pipes { one, three };

  // What a stop signal that another process sends to the child process does. `usual`: what the program makes of it.
  // `ignored`: nothing, unless the program asks for the signals. A signal to all processes of a run then does not end
  // those that carry its connections.
  enum class StopSignal { usual, ignored };

  // Starts `command`, whose first word is a path, with this process's environment and `added`, which overrides it.
  // Throws RunError if there can be no further process.
  Child(const std::vector<std::string>& command, const Environment& added, Pipes pipes = Pipes::one,
        StopSignal stop_signal = StopSignal::usual);
  // Starts a fork of this process that calls `body`, with `added` in its environment and one pipe, and exits with the
  // status that `body` returns, or 2 after reporting what it throws. The fork has none of the caller's other threads,
  // so these must hold no lock that `body` needs. Throws RunError if there can be no further process.
  Child(const std::function<int()>& body, const Environment& added,
        StopSignal stop_signal = StopSignal::usual);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // Kills the child process if it still runs.
  ~Child();

  pid_t pid() const { return pid_; }
  // The pipe of standard output, and with one pipe of standard error too. Non-blocking.
  int output() const { return output_.read.get(); }
  // With three pipes: those of standard input and standard error. Non-blocking.
  int input() const { return input_.write.get(); }
  int errors() const { return errors_.read.get(); }
  // Returns the wait status once the child process has ended. Does not block.
  std::optional<int> ended();
  // Sends a signal to the child's process group. Does nothing once the child process has ended.
  void signal(int number);

 private:
  bool fork(const std::string& what);
  void keep_own_ends();

  pid_t pid_ = -1;
  Pipe output_, input_, errors_;
  std::optional<int> status_;
};

}  // namespace dstrain
