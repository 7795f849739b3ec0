// Qwen2 (Yang et al., 2024) as transformers has it: a decoder (models/decoder) with biases of queries, keys and values.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& qwen2();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_qwen2(const ModelConfig& model);

}  // namespace dstrain
