// Frozen weights in blocks of 64 values of 8 or 4 bits, each block with one scale in f32.
// A group is 16 blocks, 1024 values: first the 16 scales (64 bytes), then the codes of its values in order. A tensor of n
// values has ceil(n / 1024) groups; the values that the last one has beyond n are 0.
// int8: a byte for each value (two's complement), 1088 bytes a group.
//   scale = largest magnitude of the block / 127; code = value / scale, rounded to nearest even, from -127 to 127. A value
//   comes back as code * scale, within half a scale. One within 1e-7 of the largest float may come back as inf.
// nf4: NormalFloat4 (QLoRA, Dettmers et al., 2023), two values in a byte, that with the even index in the lower half, 576
//   bytes a group. scale = largest magnitude of the block; code = the index of the level in kNf4Levels that is nearest to
//   value / scale, of two equally near ones the lower. A value comes back as level * scale.
// Quotients and products are rounded to f32. A block whose scale is 0 comes back as zeros.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dstrain {

// The format of a tensor's values; none: it is not packed.
enum class BlockFormat : uint8_t { none, int8, nf4 };

constexpr std::string_view name_of(BlockFormat format) {
  constexpr std::string_view names[] = {"none", "int8", "nf4"};
  return names[static_cast<int>(format)];
}

// Values of a block and of a group.
inline constexpr int64_t kWeightBlock = 64, kWeightGroup = 1024;
// Bytes of a group's scales, in front of its codes.
inline constexpr int64_t kWeightScales = kWeightGroup / kWeightBlock * int64_t{sizeof(float)};

// The levels of NormalFloat4 (appendix E of the paper).
inline constexpr std::array<float, 16> kNf4Levels = {-1.0f,
                                                     -0.6961928009986877f,
                                                     -0.5250730514526367f,
                                                     -0.39491748809814453f,
                                                     -0.28444138169288635f,
                                                     -0.18477343022823334f,
                                                     -0.09105003625154495f,
                                                     0.0f,
                                                     0.07958029955625534f,
                                                     0.16093020141124725f,
                                                     0.24611230194568634f,
                                                     0.33791524171829224f,
                                                     0.44070982933044434f,
                                                     0.5626170039176941f,
                                                     0.7229568362236023f,
                                                     1.0f};

// Returns the bytes of a group of 1024 values; 0 for none.
constexpr int64_t group_bytes(BlockFormat format) {
  switch (format) {
    case BlockFormat::int8:
      return kWeightScales + kWeightGroup;
    case BlockFormat::nf4:
      return kWeightScales + kWeightGroup / 2;
    case BlockFormat::none:
      break;
  }
  return 0;
}

// Returns the bytes of a tensor of so many values: whole groups. 0 for none.
constexpr int64_t packed_bytes(BlockFormat format, int64_t values) {
  return (values + kWeightGroup - 1) / kWeightGroup * group_bytes(format);
}

// Packs `values` values as whole groups, into packed_bytes(format, values) bytes at any address; the rest of the last
// group becomes 0. Returns false if a value is inf or NaN: what is packed then has no meaning. The result is the same on
// every machine. Throws InternalError for BlockFormat::none.
bool pack_groups(BlockFormat format, const float* x, int64_t values, std::byte* packed);

// The reverse: y gets the first `values` values of the groups in `packed`. Throws InternalError for BlockFormat::none.
void unpack_groups(BlockFormat format, const std::byte* packed, int64_t values, float* y);

}  // namespace dstrain
