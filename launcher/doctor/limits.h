// The limits of this process, compared with what the ranks of a run need.
#pragma once

#include <cstdint>

#include "launcher/doctor/machine_line.h"
#include "launcher/placement/process_limits.h"
#include "launcher/placement/system_numbers.h"

namespace dstrain {

// The limits of this process.
struct LimitFacts {
  ProcessLimits processes{};
  // Bytes of memory that may be locked, of a file that a crash leaves, and of a thread's stack.
  int64_t locked = kUnlimited, core_file = kUnlimited, stack = kUnlimited;
};

// Returns the limits of this process.
LimitFacts limit_facts();

// Returns the lines about limits for a run with these needs on a machine with `gpus` GPUs.
MachineLines limit_lines(const LimitFacts& facts, const ProcessNeeds& needs, int gpus);

}  // namespace dstrain
