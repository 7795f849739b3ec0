// A rank that the launching process started: a program, or a fork. It reports a failure on the board, from which the
// launching process reads it.
#pragma once

#include "launcher/cli/arguments.h"
#include "launcher/input/run_input.h"

namespace dstrain {

// Runs this process, a program of its own, as a rank. Returns the exit status.
int run_launched_rank(const TrainArguments& arguments);

// Runs this process, a fork of the launching process, as a rank of a run with this input. Returns the exit status.
int run_forked_rank(const RunInput& input, const LaunchOptions& options);

}  // namespace dstrain
