// Gemma (Mesnard et al., 2024) as transformers has it: a decoder (models/decoder) with scaled embeddings and norms whose
// weights are held minus 1.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gemma();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_gemma(const ModelConfig& model);

}  // namespace dstrain
