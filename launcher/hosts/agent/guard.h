// The guard: the parent process of an agent. It takes the agent's exit status to ssh, continues an agent that was
// stopped when nobody is there any more to continue it, and does what a killed agent could not do: it ends the run's
// processes and removes its files. It ends no earlier than the agent.
#pragma once

#include <functional>
#include <string>

namespace dstrain {

// The name of the run that an agent serves, in memory that it shares with its guard. Empty until the agent knows it.
class GuardedRun {
 public:
  // Throws RunError if there is no memory.
  GuardedRun();
  GuardedRun(const GuardedRun&) = delete;
  GuardedRun& operator=(const GuardedRun&) = delete;
  ~GuardedRun();

  void set(const std::string& run);
  std::string name() const;

 private:
  char* text_;
};

// Forks this process: the fork calls `agent`, and this process becomes its guard. Both ignore SIGPIPE and have the stop
// signals ignored. Returns the exit status of either: in the guard that of the agent, or 128 + n if signal n ended it,
// because ssh does not pass on which signal ended a program.
int run_guarded(const std::function<int(GuardedRun& run)>& agent);

}  // namespace dstrain
