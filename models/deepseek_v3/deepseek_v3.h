// DeepSeek-V3 (DeepSeek-AI, 2024) as transformers has it: a decoder (models/decoder) with latent attention, and experts that are chosen
// in groups, beside one that all tokens have.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& deepseek_v3();

}  // namespace dstrain
