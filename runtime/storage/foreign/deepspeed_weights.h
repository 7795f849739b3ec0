// The fp32 weights of a checkpoint that DeepSpeed has saved, as its zero_to_fp32 puts them together.
#pragma once

#include "runtime/storage/foreign/deepspeed_files.h"
#include "runtime/storage/foreign/foreign_weights.h"

namespace dstrain {

// Returns parameters, of their masters' values in fp32, frozen parameters as they are, buffers, and parameters that are
// others by the name that they share. Where no optimizer has masters (stage 0), the module's own weights. Throws UserError.
ForeignWeights weights_of_deepspeed(const DeepSpeedFiles& files);

}  // namespace dstrain
