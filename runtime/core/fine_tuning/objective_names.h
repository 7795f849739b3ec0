// The names of objectives in configurations and messages.
#pragma once

#include <array>
#include <string_view>

#include "runtime/core/fine_tuning/objective.h"

namespace dstrain {

// In the order of the kinds.
inline constexpr std::array<std::string_view, 7> kObjectiveNames = {
    "next_token", "dpo", "simpo", "orpo", "kto", "reward", "distill"};
inline constexpr std::array<std::string_view, 3> kPairLossNames = {"sigmoid", "ipo", "hinge"};

constexpr std::string_view name_of(ObjectiveKind kind) {
  return kObjectiveNames[static_cast<size_t>(kind)];
}
constexpr std::string_view name_of(PairLoss loss) {
  return kPairLossNames[static_cast<size_t>(loss)];
}

}  // namespace dstrain
