// XXH3-64 checksums of bytes in memory.
#pragma once

#include <cstdint>

namespace dstrain {

uint64_t checksum_of(const void* data, int64_t bytes);

// Returns a checksum of many bytes, computed by all threads. The value does not depend on the number
// of threads; it differs from that of checksum_of().
uint64_t checksum_of_many(const void* data, int64_t bytes);

}  // namespace dstrain
