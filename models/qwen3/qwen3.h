// Qwen3 (Yang et al., 2025) as transformers has it: a decoder (models/decoder) with norms of the queries and keys of a head.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& qwen3();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_qwen3(const ModelConfig& model);

}  // namespace dstrain
