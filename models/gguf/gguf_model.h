// What llama.cpp knows of a model: the architecture that computes the same, its fields in a GGUF file, and the names of its
// tensors there. Facts of llama.cpp's converter (convert_hf_to_gguf.py) and of its loader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/core/formats/gguf.h"

namespace dstrain::models {

// How a GGUF file has a parameter otherwise than the program.
enum class GgufChange : uint8_t {
  none,
  // The rows of each head: those of its first half and of its second half take turns, because llama.cpp rotates neighbouring
  // columns in this architecture.
  heads_interleaved,
  plus_one  // norms whose weights the program holds minus 1
};

// Parameters and what a GGUF file calls them, without ".weight" or ".bias" behind; "*" stands for the number of a layer.
struct GgufName {
  std::string_view own, written;
  GgufChange change = GgufChange::none;
};

struct GgufModel {
  std::string_view architecture;
  std::vector<GgufField> fields = {};  // of the architecture
  std::vector<GgufName> names = {};
  int64_t head_size = 0;               // rows of a head that is interleaved
  std::vector<float> rope_freqs = {};  // the tensor rope_freqs.weight; empty: there is none
  std::vector<std::string> warnings = {};

  // Adds the field ARCHITECTURE.name.
  void add(std::string_view name, GgufValue value) {
    fields.push_back({std::string(architecture) + "." + std::string(name), std::move(value)});
  }
  void add_size(std::string_view name, int64_t size) { add(name, static_cast<uint32_t>(size)); }
  void add_real(std::string_view name, double value) { add(name, static_cast<float>(value)); }
};

// A model's description, or what llama.cpp's architecture does not compute.
using GgufDescription = std::variant<GgufModel, KeyProblem>;

}  // namespace dstrain::models
