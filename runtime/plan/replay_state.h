// ReplayState: what verify() knows of a rank's memory between two instructions of a step.
#pragma once

#include <array>
#include <cstdint>
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

// A range that a collective or message under way reads or writes.
struct UnderWay {
  int32_t channel;
  int32_t number;  // of the channel's operations of the step, from 1
  Region region;
  int64_t begin, end;
  bool written;
  bool operator==(const UnderWay&) const = default;
};

// ReplayState: what each byte of memory holds, and what is under way, at one moment of a replayed step. An owner is a
// buffer of a micro-batch or of the step, or the workspace of an instruction.
struct ReplayState {
  std::array<ByteOwners, kRegions> regions{};
  std::vector<UnderWay> under_way{};
  std::vector<int32_t> started{};  // operations of the step, by channel
};

// Returns the owner that a root buffer of the plan is for a micro-batch.
inline int64_t owner_of(const Plan& plan, BufferId root, int64_t micro) {
  const Buffer& b = plan.program.at(root);
  const bool own = b.per_micro || b.lifetime == Lifetime::micro;
  return static_cast<int64_t>(root) * (plan.micro_batches + 1) + (own ? micro : 0);
}
// Returns the root buffer of an owner; kNone if it is a workspace or nobody.
inline BufferId buffer_of(const Plan& plan, int64_t owner) {
  return owner < 0 ? kNone : static_cast<BufferId>(owner / (plan.micro_batches + 1));
}
inline int64_t owner_of_workspace(size_t instruction) {
  return -2 - static_cast<int64_t>(instruction);
}

}  // namespace dstrain
