// The values of optimizer.type that a run can have.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/config/job.h"

namespace dstrain {

// The types that can be used, for messages.
inline constexpr std::string_view kOptimizerNames =
    "AdamW, Adam, SGD, Adagrad, Lion, Lamb, Muon, OneBitAdam, OneBitLamb or ZeroOneAdam";

// Returns the kind of optimizer that optimizer.type names; nothing where it names none that is available. SGD is
// written as torch.optim has it, the others in any case.
std::optional<OptimizerKind> optimizer_kind(std::string_view type);

}  // namespace dstrain
