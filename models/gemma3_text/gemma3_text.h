// Gemma 3 (Kamath et al., 2025), its text model, as transformers has it: Gemma with norms of the queries and keys of a head,
// four norms a layer, and layers with a window that have positions of their own.
#pragma once

#include "models/gguf/gguf_model.h"
#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& gemma3_text();

// Returns what llama.cpp knows of a model.
models::GgufDescription gguf_of_gemma3_text(const ModelConfig& model);

}  // namespace dstrain
