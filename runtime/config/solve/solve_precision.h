// The part of the job that says in which types values are computed, sent and kept.
#pragma once

#include <string_view>

#include "runtime/config/job.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Returns the float type with one of the names of configurations: "bf16", "bfloat16"; f32 for names of no 16-bit type.
DType dtype_named(std::string_view name);
// Returns DeepSpeed's name of a float type: "bf16".
std::string_view deepspeed_name(DType dtype);

// Sets the types of the job and its loss scale, from the sections fp16, bf16 and data_types, communication_data_type and
// the hooks that cast. Adds to `diagnostics` what contradicts.
void solve_precision(Job& job, Values& v, Diagnostics& diagnostics, const Facts& facts);

}  // namespace dstrain
