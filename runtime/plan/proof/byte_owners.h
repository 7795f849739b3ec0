// ByteOwners: who each byte of a region belongs to. PostedBytes: which operations that run beside others use each byte.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

inline constexpr int64_t kNobody = -1;

// The owner that last wrote each byte of a region.
class ByteOwners {
 public:
  // Neighbouring bytes with one owner, which end at `end`.
  struct Span {
    int64_t end;
    int64_t owner;
    bool operator==(const Span&) const = default;
  };

  void claim(int64_t begin, int64_t end, int64_t owner) {
    if (begin >= end) return;
    split(begin);
    split(end);
    const auto first = spans_.lower_bound(begin);
    spans_.erase(first, spans_.lower_bound(end));
    spans_[begin] = {end, owner};
  }
  // Returns whether all of [begin, end) belongs to `owner`.
  bool owned(int64_t begin, int64_t end, int64_t owner) const {
    auto it = spans_.upper_bound(begin);
    if (it == spans_.begin()) return begin >= end;
    --it;
    while (begin < end) {
      if (it == spans_.end() || it->first > begin || it->second.end <= begin ||
          it->second.owner != owner)
        return false;
      begin = it->second.end;
      ++it;
    }
    return true;
  }
  // Returns the largest owner of a byte of [begin, end).
  int64_t largest_owner(int64_t begin, int64_t end) const {
    int64_t largest = kNobody;
    if (begin >= end || spans_.empty()) return largest;
    auto it = spans_.upper_bound(begin);
    if (it != spans_.begin() && std::prev(it)->second.end > begin) --it;
    for (; it != spans_.end() && it->first < end; ++it)
      largest = std::max(largest, it->second.owner);
    return largest;
  }
  // Spans of one owner, by their first bytes. What is in no span is nobody's.
  const std::map<int64_t, Span>& spans() const { return spans_; }

 private:
  void split(int64_t at) {
    auto it = spans_.lower_bound(at);
    if (it == spans_.begin()) return;
    --it;
    if (it->first >= at || it->second.end <= at) return;
    const Span tail = it->second;
    it->second.end = at;
    spans_[at] = tail;
  }
  std::map<int64_t, Span> spans_;
};

// What the posted operations of each channel read and write. An operation is its number among those of its channel in
// the step, from 1 on; of several that use a byte in the same way, the last one counts.
class PostedBytes {
 public:
  explicit PostedBytes(size_t channels = 0) : channels_(channels) {}

  size_t channels() const { return channels_.size(); }
  // The operations of a channel that write the bytes of a region, or that read them.
  ByteOwners& users(size_t channel, Region region, bool write) {
    return channels_[channel][static_cast<size_t>(region)][write ? 1 : 0];
  }
  const ByteOwners& users(size_t channel, Region region, bool write) const {
    return channels_[channel][static_cast<size_t>(region)][write ? 1 : 0];
  }

 private:
  using OfRegion = std::array<ByteOwners, 2>;  // readers, writers
  std::vector<std::array<OfRegion, kRegions>> channels_;
};

}  // namespace dstrain
