// Gemma 2 (Riviere et al., 2024) as transformers has it: Gemma with limits of scores and logits, four norms a layer and a
// window in every other layer.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gemma2();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_gemma2(const ModelConfig& model);

}  // namespace dstrain
