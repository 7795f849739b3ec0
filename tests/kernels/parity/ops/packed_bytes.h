// Packed operands of the tests that compare with numpy models: bytes as values, and their CRC-32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {

inline std::vector<double> bytes_of(const std::string& raw) {
  std::vector<double> list;
  for (const char c : raw) list.push_back(static_cast<uint8_t>(c));
  return list;
}

// Returns what zlib.crc32 returns.
inline uint32_t crc32(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

// Returns an operand of packed values; without `raw` it begins undefined.
inline Operand packed_of(const Shape& shape, const std::string& raw = "") {
  return {shape, DType::u8, bytes_of(raw)};
}

}  // namespace dstrain::parity
