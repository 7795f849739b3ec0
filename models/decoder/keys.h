// What a decoder's keys say, in the form in which its forward pass wants it.
#pragma once

#include <cstdint>

#include "models/decoder/decoder.h"
#include "runtime/ir/rotary.h"

namespace dstrain::models {

// Return the heads of keys and values, and the size of a head, with their defaults.
int64_t kv_heads_of(const ModelConfig& config);
int64_t head_size_of(const ModelConfig& config);
// Returns the keys that a query sees in a layer, itself included; 0: all before it.
int64_t window_of(const ModelConfig& config, const DecoderFeatures& features, int64_t layer);
// Returns the position embedding; its length is not set.
RotaryAttrs rotary_of(const ModelConfig& config);

}  // namespace dstrain::models
