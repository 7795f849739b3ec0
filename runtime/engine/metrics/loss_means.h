// The means of a model's losses and metrics from their sums.
#pragma once

#include <span>

#include "runtime/engine/metrics/metrics.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Return the means by name, of `sums` over all that counts, `targets`, or what a metric is a mean over: of the losses, if the
// program has several of them, and of its metrics. One over nothing is no number.
NamedLosses mean_losses(const Program& program, std::span<const double> sums, double targets);
NamedLosses mean_metrics(const Program& program, std::span<const double> sums, double targets);

}  // namespace dstrain
