// Restart: --max_restarts. A run that fails while running is started again from the newest checkpoint
// that it has written, after a pause that doubles while it gets no further. Stands on supervisor.h,
// stop_signals.h and storage. Invariant: the user's mistakes and the user's signals start nothing again,
// and no checkpoint of an earlier run is taken for one of this run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/supervise/supervisor.h"

namespace dstrain {

// What came of one start of the ranks.
struct StartOutcome {
  RunReport report;
  bool stop_requested = false;  // a signal of the user asked for the end
};

struct RestartOptions {
  int64_t most = 0;    // starts after the first one
  std::string output;  // the run's output directory
};

// Starts the ranks; `resume`: the checkpoint to continue from, empty: what the command line says.
using StartRanks = std::function<StartOutcome(const std::string& resume)>;

// Waits; returns the number of a signal that ended the wait, or 0.
using Pause = std::function<int(double seconds)>;
int pause_unless_stopped(double seconds);

// Starts the ranks until they are done or may not be started again. Reports the error of the last start
// and each restart with its cause; returns the exit status.
int run_with_restarts(const RestartOptions& options, const StartRanks& start,
                      const Pause& pause = pause_unless_stopped);

// The command line's words with --resume `checkpoint` in the place of what they say; as they are where
// it is empty.
std::vector<std::string> words_resuming(const std::vector<std::string>& words,
                                        const std::string& checkpoint);

}  // namespace dstrain
