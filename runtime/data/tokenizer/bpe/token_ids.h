// TokenIds: tokens by what they are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace dstrain {

// A hash of texts by which a map of strings finds views.
struct TextHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the name of the standard
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

using TokenIds = std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>>;

}  // namespace dstrain
