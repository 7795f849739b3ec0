// WindowTags: which MPI tag a message of a window carries. Windows are numbered without end, and an MPI
// library has only so many tags (UCX: 2^23), so they are used again. Pure. Invariant: two windows whose
// numbers differ by less than windows() have no tag in common.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

class WindowTags {
 public:
  // Tags `first` to `bound`; each window takes `each` of them. There must be room for one window.
  WindowTags(int64_t first, int64_t bound, int64_t each)
      : first_(first), each_(each), windows_((std::min(bound, kMost) - first + 1) / each) {}

  int64_t windows() const { return windows_; }
  // Of message `what` (below `each`) of a window.
  int tag(int64_t window, int what) const {
    return static_cast<int>(first_ + window % windows_ * each_ + what);
  }

 private:
  static constexpr int64_t kMost = INT32_MAX;

  int64_t first_, each_, windows_;
};

}  // namespace dstrain
