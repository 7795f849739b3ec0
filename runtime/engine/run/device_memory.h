// The check that a device has the memory of a plan, before anything is allocated.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Throws UserError, on every rank, if the free memory of any rank's device is less than `memory` for each of
// the ranks that share the device, or if `memory` is more than job.device_memory; the message advises settings, planned
// with `inputs`. Collective over `host`. `sharing`: number of ranks that use this rank's device. Compares only with
// job.device_memory on a device whose memory is the host's.
void check_device_memory(const Job& job, const MemoryTable& memory, const Device& device,
                         int sharing, Communicator& host, const PlanInputs& inputs);

// Returns the plan of this rank, checked as check_device_memory() does. Where all devices have the memory
// only with something that the job leaves open (runtime/plan/settings/open_settings.h), it is the plan with that; the log
// says so. Collective over `host`.
RankPlan plan_that_fits(const Job& job, const Device& device, int sharing, Communicator& host,
                        const PlanInputs& inputs);

}  // namespace dstrain
