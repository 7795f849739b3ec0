// Qwen3 (Yang et al., 2025) as transformers has it: a decoder (models/decoder) with norms of the queries and keys of a head.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& qwen3();

}  // namespace dstrain
