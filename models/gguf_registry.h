// The families whose models llama.cpp knows.
#pragma once

#include <optional>

#include "models/gguf/gguf_model.h"

namespace dstrain {

// Returns what llama.cpp knows of a model; nothing if it has no architecture for the family. The vocabulary must be known.
std::optional<models::GgufDescription> gguf_of(const ModelConfig& model);

}  // namespace dstrain
