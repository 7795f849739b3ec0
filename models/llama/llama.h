// Llama (2, 3, 3.1, 3.2; Touvron et al., 2023) as transformers has it: see models/decoder.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& llama();

}  // namespace dstrain
