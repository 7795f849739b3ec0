// GPT-2 (Radford et al., 2019) as transformers has it: token + position embedding, pre-norm blocks (x += attn(ln_1(x));
// x += mlp(ln_2(x))), final norm, a head that is the token embedding. Keys and tensors have Hugging Face's names.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gpt2();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_gpt2(const ModelConfig& model);

}  // namespace dstrain
