// ReplayState: what verify() knows of a rank's memory between two instructions of a step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/proof/byte_owners.h"

namespace dstrain {

// ReplayState: what each byte of memory holds, and what is under way, at one moment of a replayed step. An owner is a
// buffer of a micro-batch or of the step, or the workspace of an instruction.
struct ReplayState {
  explicit ReplayState(size_t channels = 0)
      : posted(channels), started(channels), complete(channels) {}

  std::array<ByteOwners, kRegions> regions{};
  PostedBytes posted;             // operations that are complete count no more
  std::vector<int32_t> started;   // operations of the step, by channel
  std::vector<int32_t> complete;  // how many of them are known to be
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
