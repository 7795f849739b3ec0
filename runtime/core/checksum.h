// Checksums: XXH3-64 of bytes in memory. Stands on xxHash.
#pragma once

#include <cstdint>

namespace dstrain {

uint64_t checksum_of(const void* data, int64_t bytes);

// A checksum of many bytes, made by all OpenMP threads and the same at any number of them. It is not
// that of checksum_of().
uint64_t checksum_of_many(const void* data, int64_t bytes);

}  // namespace dstrain
