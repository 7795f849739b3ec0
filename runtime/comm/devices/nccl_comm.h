// NcclComm: collectives between GPUs by NCCL; every rank has a GPU of its own. They are enqueued on streams.
// The host communicator of the same ranks carries NCCL's id, small values and aborts. A thread watches NCCL
// and aborts it if it reports an error or if a collective reaches the deadline, so that no stream hangs
// for ever.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

// Returns whether this build has NCCL.
bool has_nccl();

// Collective over `host`. Throws RunError if NCCL cannot connect the GPUs. `host` and `device` must outlive
// the result.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device);

}  // namespace dstrain
