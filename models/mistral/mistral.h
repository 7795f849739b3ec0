// Mistral (Jiang et al., 2023) as transformers has it: a decoder (models/decoder) with a sliding window.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& mistral();

}  // namespace dstrain
