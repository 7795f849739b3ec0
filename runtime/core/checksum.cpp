#include "runtime/core/checksum.h"

#include "runtime/core/threads/parts.h"

#define XXH_NO_STREAM
#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace dstrain {

uint64_t checksum_of(const void* data, int64_t bytes) {
  return XXH3_64bits(data, static_cast<size_t>(bytes));
}

uint64_t checksum_of_many(const void* data, int64_t bytes) {
  constexpr int64_t block = int64_t{4} << 20;
  const auto* begin = static_cast<const unsigned char*>(data);
  std::vector<uint64_t> parts(static_cast<size_t>((bytes + block - 1) / block));
  const auto blocks = static_cast<int64_t>(parts.size());
  run_in_turns(blocks > 1 ? thread_count() : 1, blocks, [&](int64_t i) {
    const int64_t at = i * block;
    parts[static_cast<size_t>(i)] = checksum_of(begin + at, std::min(block, bytes - at));
  });
  parts.push_back(static_cast<uint64_t>(bytes));
  return checksum_of(parts.data(), static_cast<int64_t>(parts.size() * sizeof(uint64_t)));
}

}  // namespace dstrain
