// NcclComm: collectives between GPUs by NCCL, one communicator per group of ranks, every rank with a GPU
// of its own. They are enqueued on streams; the host communicator of the same ranks carries NCCL's id,
// small values and the word that somebody gave up. A watching thread aborts NCCL when it reports an
// error or when a collective makes no progress within the deadline, so that no stream hangs for ever.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

// Whether this build has NCCL.
bool has_nccl();

// Collective over `host`; both outlive the answer. Throws RunError where NCCL cannot connect the GPUs.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device);

}  // namespace dstrain
