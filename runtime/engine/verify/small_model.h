// A small model of the same family.
#pragma once

#include <cstdint>

#include "runtime/config/family/divisibility.h"
#include "runtime/config/family/model_config.h"
#include "runtime/config/job.h"

namespace dstrain {

// Returns `model` with at most `layers` numbered layers, two heads (of each rank that has some heads), and a small width,
// context and vocabulary. Other sizes shrink in proportion, and whatever is no size stays: activations, biases, ties,
// dropout. Heads and tokens divide among `ranks` wherever the model has as many of them.
ModelConfig small_model(const ModelConfig& model, int64_t layers, const DividingRanks& ranks = {});

// How the sizes of a small model relate to those of its model.
struct Shrinking {
  // Both count one numbered layer of each model.
  double layer = 1;  // the largest unit's elements, small / large
  double model = 1;  // all elements
  ModelConfig large, small;

  Shrinking(ModelConfig large_model, ModelConfig small_model);

  // Return a limit in elements that divides the small model as `limit` divides the large one: a limit on some units at a
  // time, and one on a share of the model. No limit (INT64_MAX) stays none.
  int64_t units(int64_t limit) const;
  int64_t share(int64_t limit) const;
  // Returns the limit at or below which those parameters of the small model are whose counterparts are at or below
  // `limit`.
  int64_t parameters(int64_t limit) const;
};

}  // namespace dstrain
