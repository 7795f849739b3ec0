// The GGUF format, version 3 (ggml's docs/gguf.md), as it is written: fields with their keys, the table of tensors, and the
// bytes of the tensors, each from a multiple of 32. Numbers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace dstrain {

// The types of tensors that are written, by their numbers in the format. q8_0: blocks of 32 values (blocks/q8_0.h).
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

// The value of a field, whose type is the format's of that name; lists are arrays of it.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<float>, std::vector<int32_t>>;

struct GgufField {
  std::string key;
  GgufValue value;
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // rows first; the file has the dimensions in the other order
  GgufType type = GgufType::f32;
};

// Returns the bytes of so many values, which of q8_0 are whole blocks.
int64_t gguf_bytes(GgufType type, int64_t values);

// A file before the bytes of its tensors.
struct GgufLayout {
  std::string header;           // the first bytes of the file, up to those of the tensors
  std::vector<int64_t> begins;  // the first byte in the file of each tensor
  int64_t bytes = 0;            // of the whole file, whose tensors are filled up with zeros
};

GgufLayout gguf_layout(const std::vector<GgufField>& fields,
                       const std::vector<GgufTensor>& tensors);

}  // namespace dstrain
