// Estimate: DeepSpeed's own memory estimators (estimate_zero2_model_states_mem_needs and its ZeRO-3
// sibling), formula for formula, for people who plan by their tables. Pure arithmetic on the size of a
// model; in doubles, as the estimators do, so that no model is too large to ask about.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/ir/program.h"

namespace dstrain {

// The size of a model as the estimators count it, in parameters.
struct ModelSize {
  int64_t parameters = 0;
  int64_t largest_layer = 0;  // parameters of the largest module alone: one linear, one embedding
};

// Counted as the estimators count a PyTorch model: a layer is whatever owns parameters itself, that is
// all of them whose names are equal up to the last dot.
ModelSize model_size(const Program& program);

// The machines that an estimate is made for.
struct Cluster {
  int64_t nodes = 1;
  int64_t gpus_per_node = 1;
};

// The result of an estimate: the memory that the model states need, in bytes.
struct MemoryNeed {
  double cpu_bytes = 0;  // of a node
  double gpu_bytes = 0;  // of a GPU
};

// The version of DeepSpeed whose formulas are used. They differ for ZeRO-2 without offload, which DeepSpeed
// changed in 2024.
enum class EstimatorVersion : uint8_t { today, v0_10 };

MemoryNeed estimate_zero2(const ModelSize& model, const Cluster& cluster, bool offload_optimizer,
                          EstimatorVersion version = EstimatorVersion::today);

// The options of DeepSpeed's ZeRO-3 that change the estimate.
struct Zero3Options {
  bool offload_optimizer = false;
  bool offload_param = false;  // only together with the optimizer
  bool zero_init = true;       // parameters are split while the model is built
};
MemoryNeed estimate_zero3(const ModelSize& model, const Cluster& cluster,
                          const Zero3Options& options);

// The estimators' output: heading, column titles, a row for every combination of options; GB are 2^30
// bytes. Three decimals where DeepSpeed prints two, or small models would all read alike.
std::string zero2_table(const ModelSize& model, const Cluster& cluster);
std::string zero3_table(const ModelSize& model, const Cluster& cluster);

}  // namespace dstrain
