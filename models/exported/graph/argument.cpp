#include "models/exported/graph/argument.h"

#include <array>

namespace dstrain::exported {

std::string_view kind_of(const Argument& argument) {
  constexpr std::array<std::string_view, std::variant_size_v<Argument>> kinds = {
      "None",
      "a tensor",
      "a list of tensors",
      "a whole number",
      "a list of whole numbers",
      "a fraction",
      "a list of fractions",
      "a truth value",
      "a list of truth values",
      "a text",
      "a list of texts",
      "an element type",
      "a memory format"};
  return kinds[argument.index()];
}

}  // namespace dstrain::exported
