// Qwen2 (Yang et al., 2024) as transformers has it: a decoder (models/decoder) with biases of queries, keys and values.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& qwen2();

}  // namespace dstrain
