// What the log says of the metrics of a run. Pure.
#pragma once

#include <string>

#include "runtime/engine/metrics/metrics.h"

namespace dstrain {

// Returns the log line of a step, with step=, loss=, lr=, grad_norm=, samples/s= and mem=.
std::string log_line(const StepMetrics& metrics);

// Return the lines of wall_clock_breakdown, which have DeepSpeed's form: of a micro-batch, of the whole step, and of the
// messages between the stages of a pipeline.
std::string micro_batch_line(const PhaseTimes& times);
std::string phases_line(const PhaseTimes& times);
std::string messages_line(const MessageTimes& times);

// Returns "validation loss 3.0311", and where `perplexity` says so ", perplexity 20.72" behind it.
std::string validation_text(const ValidationMetrics& metrics, bool perplexity);

// What the live line needs besides the newest step.
struct LiveRates {
  int64_t steps = 0;   // the last step of the run
  double step_ms = 0;  // of a usual step
  double full_rate_s =
      0;                // of a step whose products had the rate of one large product; 0: not known
  bool tokens = false;  // the model predicts tokens
};
// Returns what the live line says behind the step: "loss 3.0311 | 3m07s left | 12.3k tokens/s | 45.2 samples/s | MFU 61% |
// mem 1.50GB", the most important first, as a narrow terminal cuts it.
std::string live_text(const StepMetrics& metrics, const LiveRates& rates);

// Returns "42s", "3m07s", "2h05m", "5d03h"; "?" for a negative, huge or non-finite number.
std::string duration_text(double seconds);

// Returns the last line of a run of so many steps: the last step, skipped updates, the newest losses, the output directory.
std::string last_line(int64_t all_steps, const std::string& output, const RunEnd& end);

}  // namespace dstrain
