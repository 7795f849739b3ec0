// Mistral (Jiang et al., 2023) as transformers has it: a decoder (models/decoder) with a sliding window.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& mistral();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_mistral(const ModelConfig& model);

}  // namespace dstrain
