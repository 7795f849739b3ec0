// Gemma 2 (Riviere et al., 2024) as transformers has it: Gemma with limits of scores and logits, four norms a layer and a
// window in every other layer.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gemma2();

}  // namespace dstrain
