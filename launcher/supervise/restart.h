// --max_restarts: a run that fails is started again from the newest checkpoint that it has written, after a pause that
// doubles while no new checkpoint is written. Invariant: errors in the input and stop signals cause no restart, and no
// checkpoint of an earlier run is taken for one of this run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/supervise/supervisor.h"

namespace dstrain {

// The result of starting the ranks once: how the run ended, and whether a stop signal came.
struct StartOutcome {
  RunReport report;
  bool stop_requested = false;
};

// The settings of --max_restarts.
struct RestartOptions {
  int64_t most = 0;    // the largest number of restarts
  std::string output;  // the run's output directory
};

// Starts the ranks. `resume`: the output directory whose newest checkpoint to resume from; empty: as the command line says.
using StartRanks = std::function<StartOutcome(const std::string& resume)>;

// Waits. Returns the stop signal that ended the wait, or 0.
using Pause = std::function<int(double seconds)>;
int pause_unless_stopped(double seconds);

// Starts the ranks until they are done or may not be restarted. Logs each restart with its cause, and prints the error
// of the last start. Returns the exit status.
int run_with_restarts(const RestartOptions& options, const StartRanks& start,
                      const Pause& pause = pause_unless_stopped);

// Returns the command line `words` with --resume `resume` in place of any other --resume and of --init_weights, as
// the checkpoint has the weights; unchanged if `resume` is empty.
std::vector<std::string> words_resuming(const std::vector<std::string>& words,
                                        const std::string& resume);

}  // namespace dstrain
