// The sizes in which memory is reserved.
#pragma once

#include <cstdint>

namespace dstrain {

inline constexpr int64_t kSmallPage = 4096, kHugePage = int64_t{2} << 20;

// Returns the bytes that a reservation of `bytes` takes: whole pages, huge ones from one huge page on.
constexpr int64_t whole_pages(int64_t bytes) {
  const int64_t page = bytes >= kHugePage ? kHugePage : kSmallPage;
  return (bytes + page - 1) / page * page;
}

}  // namespace dstrain
