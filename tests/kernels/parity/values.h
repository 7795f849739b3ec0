// Test values: seeded random fills, and conversion of elements of any dtype from and to double.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/core/dtype.h"
#include "runtime/core/philox.h"

namespace dstrain::parity {

// Returns n values from the uniform distribution on [low, high); the same seed gives the same values.
inline std::vector<double> uniform_values(int64_t n, uint64_t seed, double low = -1,
                                          double high = 1) {
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * static_cast<double>(mix64(mix64(seed) + i) >> 11) * 0x1p-53;
  return values;
}

// Returns n values from N(0, std); the same seed gives the same values.
inline std::vector<double> normal_values(int64_t n, uint64_t seed, double std = 1) {
  const std::vector<double> u = uniform_values(2 * n, seed, 0x1p-53, 1);
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std * std::sqrt(-2 * std::log(u[2 * i])) * std::cos(2 * M_PI * u[2 * i + 1]);
  return values;
}

// Returns n integers in [low, high), as doubles.
inline std::vector<double> integer_values(int64_t n, uint64_t seed, int64_t low, int64_t high) {
  std::vector<double> values =
      uniform_values(n, seed, static_cast<double>(low), static_cast<double>(high));
  for (double& v : values) v = std::floor(v);
  return values;
}

inline double load_as_double(const void* at, DType dtype, int64_t i) {
  const auto read = [&](auto value) {
    std::memcpy(&value, static_cast<const char*>(at) + i * static_cast<int64_t>(sizeof(value)),
                sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return read(float{});
    case DType::bf16:
      return to_float(read(bf16{}));
    case DType::f16:
      return to_float(read(f16{}));
    case DType::f64:
      return read(double{});
    case DType::i32:
      return read(int32_t{});
    case DType::u8:
      return read(uint8_t{});
  }
  return 0;
}

inline void store_from_double(void* at, DType dtype, int64_t i, double x) {
  const auto write = [&](auto value) {
    std::memcpy(static_cast<char*>(at) + i * static_cast<int64_t>(sizeof(value)), &value,
                sizeof(value));
  };
  switch (dtype) {
    case DType::f32:
      return write(static_cast<float>(x));
    case DType::bf16:
      return write(to_bf16(static_cast<float>(x)));
    case DType::f16:
      return write(to_f16(static_cast<float>(x)));
    case DType::f64:
      return write(x);
    case DType::i32:
      return write(static_cast<int32_t>(x));
    case DType::u8:
      return write(static_cast<uint8_t>(x));
  }
}

}  // namespace dstrain::parity
