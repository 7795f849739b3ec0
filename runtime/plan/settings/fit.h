// Fit: the memory of a job as it is and with other settings, found by planning them: a higher ZeRO stage, recompute, rows
// that a tensor group gathers again, a smaller micro-batch with more accumulation, the loss and MLPs in pieces of rows,
// offload where the device's memory is what is short. None of them changes what the model learns. Gradients, masters and
// moments of a 16-bit run in 16 bits do, and are told apart. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

// Memory that a rank which is a program of its own needs besides its plan: code, libraries and their buffers, MPI, the
// GPU driver's. Forks of a launching process need less (launcher/input/memory_check.h).
inline constexpr int64_t kProcessOverheadBytes = int64_t{160} << 20;

// The most bytes that the plan of a rank reserves. Ranks reserve the same, but for those that update other whole matrices, as
// Muon's do.
struct PlannedMemory {
  int64_t device = 0, host = 0, disk = 0;
  int64_t device_pages = 0, host_pages = 0;  // of the whole pages that hold them
};
PlannedMemory planned_memory(const Job& job, const PlanInputs& inputs);
// The same of a job of which plans are made: one rank's of each stage.
PlannedMemory planned_memory(const Job& job, const std::vector<RankPlan>& stages,
                             const PlanInputs& inputs);
// Returns the most bytes of these plans.
PlannedMemory planned_memory(const std::vector<RankPlan>& stages);
// Returns the sum of device and host.
int64_t planned_bytes(const Job& job, const PlanInputs& inputs);

// Returns whether the device's memory alone limits a run: that of a GPU, or a configured capacity. Elsewhere what is
// offloaded takes the same memory as the rest.
bool limits_device(const Job& job);
// Returns whether the ranks of a tensor group keep rows in the job's plan that they could gather again.
bool can_gather_again(const Job& job);
// Returns the highest ZeRO stage that goes with the job's optimizer and with what its gradients travel as.
int highest_stage(const Job& job);

// A change of settings that can reduce the memory of a job, with its effect on memory and speed.
struct Variant {
  std::string settings;  // command-line options: "--set dstrain.recompute=1"
  int64_t bytes = 0;    // of a rank: of its device, if that limits the run, else of device and host
  double slowdown = 1;  // step time relative to the job's, estimated from operations and traffic
  int64_t saved = 0;    // bytes less than the job's; negative: it takes more
};

// Returns the job with one setting changed, for each change that could reduce memory; fastest first.
std::vector<Variant> single_changes(const Job& job, const PlanInputs& inputs);

// A change that rounds more, and what that costs.
struct RoundingVariant : Variant {
  std::string_view cost;  // "steps of less than 1/512 of a weight are lost"
};
// Returns the job with more of its values in 16 bits, for each way that it has to do so, from little to much; none where it
// computes in fp32.
std::vector<RoundingVariant> rounding_changes(const Job& job, const PlanInputs& inputs);

// Returns at most `most` variants whose rank needs at most `offered` bytes, fastest first: variants with one
// change; if there are fewer than `most`, also with two, then with more. Of those that change the same things only the
// fastest is among them.
std::vector<Variant> ways_to_fit(const Job& job, int64_t offered, const PlanInputs& inputs,
                                 size_t most = 3);

// Returns ways_to_fit() as text: "to fit, add --set ... (1.2 GB, saves 300 MB), or ..."; other advice if there are none; and
// behind it rounding_changes() that save memory, first those that fit.
std::string advice_to_fit(const Job& job, int64_t offered, const PlanInputs& inputs);

// Returns what is wrong, with advice, if the plan of one rank needs more of its device than job.device_memory; else "".
std::string lack_of_device_memory(const Job& job, const PlanInputs& inputs);
// The same of a job whose plans are made.
std::string lack_of_device_memory(const Job& job, const PlannedMemory& planned,
                                  const PlanInputs& inputs);

// Returns single_changes() and rounding_changes() as tables.
std::string changes_text(const Job& job, const PlanInputs& inputs);

}  // namespace dstrain
