// Decoders in GGUF files.
#pragma once

#include "models/decoder/decoder.h"
#include "models/gguf/gguf_model.h"

namespace dstrain::models {

// What an architecture of llama.cpp has otherwise than the others.
struct GgufDecoder {
  std::string_view architecture;
  bool interleaved = false;     // neighbouring columns are rotated
  bool biases = false;          // attention and MLP may have them, where the family has the key
  bool rotary_factors = false;  // it reads rope_freqs.weight
  // The number of layers with which scores are divided by the root of width / heads, not of the size of a head; 0: none.
  int64_t large_layers = 0;
  // Every so many layers one has no window; 0: layers have none.
  int64_t whole_every = 0;
  bool local_theta = false;  // layers with a window have positions of their own
};

// Returns the description of a model of a family with these parts.
GgufDescription gguf_of_decoder(const ModelConfig& model, const DecoderParts& parts,
                                const GgufDecoder& known);

}  // namespace dstrain::models
