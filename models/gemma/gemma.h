// Gemma (Mesnard et al., 2024) as transformers has it: a decoder (models/decoder) with scaled embeddings and norms whose
// weights are held minus 1.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gemma();

}  // namespace dstrain
