// The element types of PyTorch's tensors that an exported graph may have.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dstrain::exported {

// An element type, by the names that the rest of the program uses; f8_e4m3 is PyTorch's float8_e4m3fn.
enum class ScalarType : uint8_t {
  boolean,
  u8,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  f8_e4m3,
  f8_e5m2
};

// Returns the bytes of an element.
int64_t size_of(ScalarType type);

std::string_view name_of(ScalarType type);

// Whether elements are fractions, in any format.
bool is_floating(ScalarType type);

// Returns the type of a number of the archive's schema, or nothing: complex numbers, unsigned ones of 16 bits and more, and
// what later versions add.
std::optional<ScalarType> scalar_type_of(int64_t number);

}  // namespace dstrain::exported
