// SlotRule: what plans, memory and checkpoints know of a part of an optimizer's state.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/ir/units/unit.h"

namespace dstrain {

// A part of an optimizer's state, which begins with zeros. Checkpoints use the name too.
struct SlotRule {
  static constexpr int64_t kWholeParameter = 0;

  std::string_view name{};
  UpdateForms forms = kAllForms;  // of the parameters that have it
  bool gathered = false;  // each rank has room for that of the whole unit, where it is sharded
  std::optional<DType> dtype{};  // of its values; none: job.state_dtype
  // Consecutive elements of a parameter that have one value, counted from its first one; kWholeParameter: all of them.
  int64_t block = 1;

  // For state that is kept beside the slots (UnitUpdate::keep()), which is f32 and of all forms:
  std::string_view values_of{};  // the slot whose values these are; empty: it has values of its own
  bool per_rank = false;  // ranks have different values; other numbers of ranks go on with the mean

  DType dtype_in(const Job& job) const { return dtype.value_or(job.state_dtype); }
};

}  // namespace dstrain
