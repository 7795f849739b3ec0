// Llama (2, 3, 3.1, 3.2; Touvron et al., 2023) as transformers has it: see models/decoder.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& llama();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_llama(const ModelConfig& model);

}  // namespace dstrain
