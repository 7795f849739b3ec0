#include "runtime/storage/weights/fp8_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace dstrain {
namespace {

constexpr int64_t kAtOnce = 1 << 18;  // elements
constexpr std::string_view kFp8Type = "F8_E4M3";

int64_t blocks_in(int64_t elements) {
  return (elements + kFp8Block - 1) / kFp8Block;
}

std::array<float, 256> all_values() {
  std::array<float, 256> values{};
  for (size_t bits = 0; bits < values.size(); ++bits) {
    const auto exponent = static_cast<int>(bits >> 3 & 15), fraction = static_cast<int>(bits & 7);
    float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    if (exponent == 15 && fraction == 7) value = std::numeric_limits<float>::quiet_NaN();
    values[bits] = (bits & 128) != 0 ? -value : value;
  }
  return values;
}

}  // namespace

float from_e4m3(uint8_t bits) {
  static const std::array<float, 256> values = all_values();
  return values[bits];
}

std::string name_of_scales(const std::string& weight) {
  return weight + "_scale_inv";
}

bool is_fp8(const SafetensorsTensor& tensor) {
  return tensor.type.name == kFp8Type;
}

std::string fp8_problem(const std::string& name, const SafetensorsTensor& weight,
                        const std::optional<WeightFiles::Found>& scales) {
  if (weight.shape.size() != 2) return fmt::format("{} is {} and no matrix", name, kFp8Type);
  const std::vector<int64_t> expected{blocks_in(weight.shape[0]), blocks_in(weight.shape[1])};
  const std::string wanted =
      fmt::format("its scales {}, F32 ({}), one of each block of {} x {}", name_of_scales(name),
                  fmt::join(expected, ", "), kFp8Block, kFp8Block);
  if (!scales) return fmt::format("{} is {}, and {} are missing", name, kFp8Type, wanted);
  const SafetensorsTensor& t = *scales->tensor;
  if (t.type.name == "F32" && t.shape == expected) return "";
  return fmt::format("{} is {}: expected {}, found {} ({})", name, kFp8Type, wanted, t.type.name,
                     fmt::join(t.shape, ", "));
}

void read_fp8(const WeightFiles::Found& weight, const WeightFiles::Found& scales, int64_t first,
              int64_t count, float* to, std::vector<uint8_t>& bytes) {
  const int64_t columns = weight.tensor->shape[1], in_row = scales.tensor->shape[1];
  const int64_t first_block = first / columns / kFp8Block,
                end_block = (first + count - 1) / columns / kFp8Block + 1;
  std::vector<float> factors(static_cast<size_t>((end_block - first_block) * in_row));
  scales.file->read_at(factors.data(), 4 * std::ssize(factors),
                       scales.tensor->begin + 4 * first_block * in_row);
  bytes.resize(static_cast<size_t>(std::min(kAtOnce, count)));
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(kAtOnce, count - done);
    weight.file->read_at(bytes.data(), n, weight.tensor->begin + first + done);
    for (int64_t i = 0; i < n;) {
      const int64_t at = first + done + i, row = at / columns, column = at % columns;
      const int64_t block = column / kFp8Block;
      const int64_t end = std::min(n, i + std::min((block + 1) * kFp8Block, columns) - column);
      const float factor =
          factors[static_cast<size_t>((row / kFp8Block - first_block) * in_row + block)];
      for (; i < end; ++i) to[done + i] = from_e4m3(bytes[static_cast<size_t>(i)]) * factor;
    }
    done += n;
  }
}

}  // namespace dstrain
