// Distances between numbers that are expected to be near each other.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace dstrain {

// Raises `most` to `distance` if that is larger. NaN is farther than every number: std::max would drop it.
inline void raise_to(double& most, double distance) {
  if (!std::isnan(most) && !(distance <= most)) most = distance;
}

// Returns the largest distance of two elements at the same index, NaN if one of them is NaN. Requires equal lengths.
template <class T>
double largest_distance(const std::vector<T>& expected, const std::vector<T>& found) {
  REQUIRE(found.size() == expected.size());
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i)
    raise_to(most, std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
  return most;
}

// Returns the largest distance relative to the element of `expected`, NaN if it is NaN for one of them. Requires equal
// lengths, and at least one element.
template <class T>
double largest_relative_distance(const std::vector<T>& expected, const std::vector<T>& found) {
  REQUIRE(found.size() == expected.size());
  REQUIRE_FALSE(found.empty());
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto right = static_cast<double>(expected[i]);
    raise_to(most, std::abs(static_cast<double>(found[i]) - right) / std::abs(right));
  }
  return most;
}

// Returns the largest magnitude of an element, NaN if one of them is NaN.
template <class T>
double largest_magnitude(const std::vector<T>& values) {
  double most = 0;
  for (const T& value : values) raise_to(most, std::abs(static_cast<double>(value)));
  return most;
}

}  // namespace dstrain
