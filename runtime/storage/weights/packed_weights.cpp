#include "runtime/storage/weights/packed_weights.h"

#include <algorithm>
#include <vector>

#include "runtime/core/devices/host_pieces.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kGroupsAtOnce = 256;

}  // namespace

void as_elements(StateEntry& entry, const Shape& shape, BlockFormat format) {
  entry.global_shape = shape;
  entry.blocks = format;
  entry.begin = entry.begin / group_bytes(format) * kWeightGroup;
}

void pack_entry(const StateEntry& entry, const MakeValues& make) {
  const int64_t group = group_bytes(entry.blocks), most = kGroupsAtOnce * group;
  const int64_t all = entry.global_shape.elements(), bytes = entry.local.bytes();
  check(entry.begin % kWeightGroup == 0 && bytes % group == 0 &&
            entry.begin + bytes / group * kWeightGroup < all + kWeightGroup,
        "{} bytes from element {} are not groups of {}", bytes, entry.begin, entry.name);
  std::vector<float> wide(static_cast<size_t>(kGroupsAtOnce * kWeightGroup));
  const auto pack = [&](int64_t at, std::byte* packed, int64_t n) {
    const int64_t begin = entry.begin + at / group * kWeightGroup,
                  count = std::min(n / group * kWeightGroup, all - begin);
    make(begin, count, wide.data());
    check(pack_groups(entry.blocks, wide.data(), count, packed), "a value of {} is no number",
          entry.name);
  };
  if (entry.device) {
    for_host_pieces(*entry.device, entry.local.data, bytes, most, HostAccess::write, pack);
    return;
  }
  for (int64_t at = 0; at < bytes; at += most)
    pack(at, entry.local.as<std::byte>() + at, std::min(most, bytes - at));
}

}  // namespace dstrain
