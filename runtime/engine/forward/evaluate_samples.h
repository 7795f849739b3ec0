// Evaluation of a model that reads arrays: its loss and its metrics on whole data, by one process.
#pragma once

#include <cstdint>

#include "runtime/data/dataset.h"
#include "runtime/engine/forward/forward_model.h"
#include "runtime/engine/metrics/metrics.h"

namespace dstrain {

struct SampleEvaluation {
  int64_t samples = 0;
  double loss = 0;           // mean over the samples, or over what the model counts in its loss
  NamedLosses metrics = {};  // means alike
};

// Measures `model`, whose program has losses and a batch of one sample, on the samples of the validation part of the data, in
// their order. Throws RunError if the data change meanwhile.
SampleEvaluation evaluate_samples(ForwardModel& model, const Dataset& data);

}  // namespace dstrain
