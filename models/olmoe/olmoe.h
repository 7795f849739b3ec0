// OLMoE (Muennighoff et al., 2024) as transformers has it: a decoder (models/decoder) with experts, and norms
// of all queries and of all keys of a row.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& olmoe();

}  // namespace dstrain
