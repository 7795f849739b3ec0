// WindowTags: the MPI tag that a message of a window carries. Window numbers grow without bound, but an MPI
// library has a limited number of tags (UCX: 2^23), so tags are reused. Pure. Invariant: two windows whose
// numbers differ by less than windows() have no tag in common.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

class WindowTags {
 public:
  // Uses the tags `first` to `bound`, `each` of them per window. There must be room for one window.
  WindowTags(int64_t first, int64_t bound, int64_t each)
      : first_(first), each_(each), windows_((std::min(bound, kMost) - first + 1) / each) {}

  int64_t windows() const { return windows_; }
  // Returns the tag of message `what` (below `each`) of a window.
  int tag(int64_t window, int what) const {
    return static_cast<int>(first_ + window % windows_ * each_ + what);
  }

 private:
  static constexpr int64_t kMost = INT32_MAX;

  int64_t first_, each_, windows_;
};

}  // namespace dstrain
