// The names of objectives in configurations and messages.
#pragma once

#include <string_view>

#include "runtime/core/fine_tuning/objective.h"

namespace dstrain {

// In the order of the values, as the key table has choices.
inline constexpr std::string_view kObjectiveNames = "next_token|dpo|simpo|orpo|kto|reward|distill";
inline constexpr std::string_view kAnswerLossNames = "sigmoid|ipo|hinge|kto|apo_zero_unpaired";

// Returns name `number` of a list of them.
constexpr std::string_view name_in(std::string_view list, int number) {
  for (; number > 0; --number) list.remove_prefix(list.find('|') + 1);
  return list.substr(0, list.find('|'));
}
// Returns whether an objective has a loss of this kind.
constexpr bool has_loss(ObjectiveKind kind, AnswerLoss loss) {
  const bool of_rated = loss == AnswerLoss::kto || loss == AnswerLoss::apo_zero_unpaired;
  return of_rated ? kind == ObjectiveKind::kto : kind == ObjectiveKind::dpo;
}
// Returns the number of a name in a list, which has it.
constexpr int number_in(std::string_view list, std::string_view name) {
  int number = 0;
  while (name_in(list, number) != name) ++number;
  return number;
}

constexpr std::string_view name_of(ObjectiveKind kind) {
  return name_in(kObjectiveNames, static_cast<int>(kind));
}
constexpr std::string_view name_of(AnswerLoss loss) {
  return name_in(kAnswerLossNames, static_cast<int>(loss));
}
static_assert(name_of(ObjectiveKind::distill) == "distill" && name_of(AnswerLoss::kto) == "kto");

}  // namespace dstrain
