// Rows of the key table that models have in common. Names of parameters are part of the file format of weights
// (docs/formats.md).
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain::models {

inline constexpr double kMostLayers =
    2048;  // a plan lists every instruction of a step, for each layer
inline constexpr double kMostOfASize = 2147483647;
inline constexpr double kMostOfAReal = 1e15;

// Returns the row of a size from 1 up. An empty `fallback`: it has no default.
constexpr KeySpec size_key(std::string_view key, std::string_view fallback, std::string_view note,
                           double most = kMostOfASize) {
  return {
      .key = key, .type = Type::integer, .fallback = fallback, .note = note, .min = 1, .max = most};
}

// Returns the row of a real from `least` up, for which null is its default. An empty `fallback`: it has none.
constexpr KeySpec real_key(std::string_view key, std::string_view fallback, std::string_view note,
                           double least) {
  return {.key = key,
          .type = Type::real,
          .fallback = fallback,
          .note = note,
          .min = least,
          .max = kMostOfAReal,
          .nullable = true};
}

}  // namespace dstrain::models
