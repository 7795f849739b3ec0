// GPT-NeoX (Black et al., 2022) and Pythia as transformers has them: rotary positions in a part of each head, biases, an MLP
// without a gate, and attention and MLP of a block beside each other.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gpt_neox();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_gpt_neox(const ModelConfig& model);

}  // namespace dstrain
