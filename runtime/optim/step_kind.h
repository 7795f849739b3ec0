// Kinds of training steps. A run whose steps differ in what they send or update has a plan for each kind.
#pragma once

#include <cstdint>
#include <string_view>

namespace dstrain {

// The kind of a training step: what its ranks send and update.
enum class StepKind : uint8_t {
  // Most jobs have no other kind. With PowerSGD: gradients travel as factors. With post_localSGD: the step ends with the
  // average of the weights. With OneBitAdam and OneBitLamb: the second moment is frozen. With ZeroOneAdam: ranks
  // synchronise their local steps.
  regular,
  whole_gradients,  // gradients are added as they are; with ZeroOneAdam the second moment is updated
  gradient_signs,   // ZeroOneAdam: gradients travel as signs
  // post_localSGD: groups of ranks update weights of their own, which are not averaged yet; ZeroOneAdam: ranks move by
  // their own gradients
  local,
  // OneBitAdam and OneBitLamb, sharded: regular, and ranks gather the momentum, of which each has had a slice
  whole_momentum,
};
// Returns the name as printed: "whole gradients".
constexpr std::string_view name_of(StepKind kind) {
  constexpr std::string_view names[] = {"regular", "whole gradients", "gradient signs", "local",
                                        "whole momentum"};
  return names[static_cast<int>(kind)];
}

}  // namespace dstrain
