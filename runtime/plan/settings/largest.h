// Largest: the largest model of a family that trains on a described machine, as a configuration says and with more and
// more of its state offloaded, and the longest sequence of the configured model; found by planning. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/report/print.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {

// The longest samples of a model that train in the memory that there is.
struct LongestSequence {
  int64_t tokens = 0;      // of a sample; 0: not even the shortest one fits
  PlannedMemory memory{};  // of each rank
  std::string limit{};  // what the next longer one exceeds; empty: it is as long as samples may be
};

// Returns the longest sequence of the job's model with micro-batch 1, a multiple of 128 tokens that divides among the
// job's ranks, for which `exceeded` returns nothing. The model's context grows with it. What the job leaves open is
// settled as a run would settle it that has no other way to fit. Models without tokens, and those whose
// sizes are fixed, have none.
LongestSequence longest_sequence(const Job& job, const PlanInputs& inputs,
                                 const std::function<std::string(const PlannedMemory&)>& exceeded);

// The memory of a machine, in bytes: of the device of each rank, and what its ranks share.
struct MachineMemory {
  int64_t device = 0, host = 0;
  int64_t disk = 0;  // 0: nothing is offloaded to nvme
};

// The largest model with these settings.
struct LargestModel {
  std::string settings{};  // command-line options; empty: as the job is
  ModelConfig model{};
  int64_t parameters = 0;     // without biases and norms; 0: not even the smallest one fits
  PlannedMemory memory{};     // of each rank
  std::string limit{};        // what the next larger model exceeds: device, host or disk
  LongestSequence longest{};  // of the job's own model, with these settings
};

// Returns the largest model that fits for the job's settings, and for settings that keep less on the device. Models are
// of the job's family, with heads of 128 channels, as deep as wide models are (a layer for every 128 channels) and four
// times deeper, where a layer takes less of the device. Batch, dtype and the other keys of the model are the job's, and
// its ranks share one machine. Throws UserError if the family has no heads, or the machine has over 100 PB.
std::vector<LargestModel> largest_models(const Job& job, const MachineMemory& machine,
                                         const PlanInputs& inputs);

// Returns them as a table, or as JSON (docs/formats.md).
std::string largest_text(const std::vector<LargestModel>& models, const Job& job,
                         const MachineMemory& machine);
std::string largest_json(const std::vector<LargestModel>& models, const ModelFamily& family,
                         const Assumptions& assumed = {});

}  // namespace dstrain
