// Mixtral (Jiang et al., 2024) as transformers has it: a decoder (models/decoder) whose blocks have experts, with the tensors w1, w3 and w2 of a gated MLP.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& mixtral();

}  // namespace dstrain
