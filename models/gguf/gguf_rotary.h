// Rotary positions in GGUF files.
#pragma once

#include <optional>

#include "models/gguf/gguf_model.h"
#include "runtime/ir/rotary.h"

namespace dstrain::models {

// Adds the fields of a position embedding, and the factors of frequencies where `has_factors` says that the architecture
// reads them. Returns what llama.cpp does not compute.
std::optional<KeyProblem> add_gguf_rotary(GgufModel& model, const RotaryAttrs& rotary,
                                          bool has_factors);

}  // namespace dstrain::models
