// The runs of a verification, on ranks of this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/engine/verify/compare.h"
#include "runtime/engine/verify/seeded_fault.h"

namespace dstrain {

struct VerifyOptions {
  int64_t steps = 0;
  bool deep = false;  // the configured run is stopped in the middle and resumed from a checkpoint
  std::optional<Fault> fault{};
};

// Trains a small job (runtime/engine/verify/small_job.h) naively, plainly and as it is, and compares the three. Files of
// offloaded tensors and of a checkpoint are in a folder that is gone at the end. Throws UserError if the job has nothing
// that the fault could change.
Comparison verify_small_job(const Job& small, const Dataset& data, const VerifyOptions& options);

}  // namespace dstrain
