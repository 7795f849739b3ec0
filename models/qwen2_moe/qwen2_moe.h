// Qwen1.5-MoE and Qwen2-MoE (Yang et al., 2024) as transformers has it: a decoder (models/decoder) with experts, and beside
// them one MLP that all tokens have, times a gate.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& qwen2_moe();

}  // namespace dstrain
