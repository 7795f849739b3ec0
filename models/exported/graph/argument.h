// The arguments of operators in an exported graph.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/exported/graph/scalar_type.h"
#include "models/exported/graph/size.h"

namespace dstrain::exported {

// A tensor of a graph by its place in Graph::tensors; -1: none.
struct TensorRef {
  int32_t id = -1;

  explicit operator bool() const { return id >= 0; }
  bool operator==(const TensorRef&) const = default;
};

// The order of a tensor's elements in memory that an operator asks for.
enum class MemoryFormat : uint8_t { contiguous, channels_last, channels_last_3d, preserve };

// None, a tensor, a list of tensors (of which some may be none), a whole number, a list of them, fractions, truth values,
// texts, an element type, an order in memory.
using Argument =
    std::variant<std::monostate, TensorRef, std::vector<TensorRef>, Size, std::vector<Size>, double,
                 std::vector<double>, bool, std::vector<bool>, std::string,
                 std::vector<std::string>, ScalarType, MemoryFormat>;

// Returns "a tensor", "a list of whole numbers" and so on.
std::string_view kind_of(const Argument& argument);

}  // namespace dstrain::exported
