// Kinds of training steps. A run whose steps differ in what they send or update has a plan for each kind.
#pragma once

#include <cstdint>
#include <string_view>

namespace dstrain {

// The kind of a training step: what its ranks send and update. Most jobs have regular steps alone, which add
// gradients. The other kinds are of jobs with the hook or the optimizer that is named here.
enum class StepKind : uint8_t {
  // The step for which the job has its hook or its optimizer. PowerSGD: gradients travel as factors. post_localSGD: as
  // `local`, and the weights of all groups are averaged in the end. OneBitAdam, OneBitLamb: momenta travel as signs,
  // and the second moment is frozen. ZeroOneAdam: as `local`, and what ranks have moved since the last such step
  // travels as signs.
  regular,
  // Ranks add their gradients, as a job without the hook or with the plain optimizer does.
  whole_gradients,
  // ZeroOneAdam: gradients travel as signs, and the second moment stays as it is.
  gradient_signs,
  // post_localSGD: each group of ranks updates weights of its own. ZeroOneAdam: each rank does, by its own gradients.
  local,
  // OneBitAdam, OneBitLamb at ZeRO stage 1: as `regular`, but ranks first gather the momentum, of which each has a
  // slice.
  whole_momentum,
};
// Returns the name as printed: "whole gradients".
constexpr std::string_view name_of(StepKind kind) {
  constexpr std::string_view names[] = {"regular", "whole gradients", "gradient signs", "local",
                                        "whole momentum"};
  return names[static_cast<int>(kind)];
}

}  // namespace dstrain
