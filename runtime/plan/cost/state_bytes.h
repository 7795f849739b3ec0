// State bytes: what ranks hold of a model's state for each element of a parameter, without a plan. It is what plans come
// to, but for padding, buffers of transfers, codecs' state and what small units keep on the device. Pure functions.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Bytes by where they are.
struct SpaceBytes {
  double device = 0, host = 0, disk = 0;

  double memory() const { return device + host; }
  double all() const { return device + host + disk; }
};

// Returns the bytes of state that a rank holds for one element of the parameter: its value, gradient, master and moments.
SpaceBytes state_bytes(const Job& job, const Parameter& parameter);

// Returns a lower bound of the bytes of state that the largest rank holds, from the measures of the model: fast for any
// model. The bound is one of memory() and of all(), as what is offloaded goes by whole units.
SpaceBytes least_state_bytes(const Job& job);

}  // namespace dstrain
