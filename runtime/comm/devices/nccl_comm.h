// NCCL as the StreamTransport of a StreamComm, between GPUs. A build without NCCL has these functions, too
// (no_nccl.cpp).
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"
#include "runtime/core/devices/rank_sum.h"

namespace dstrain {

// Returns whether this build has NCCL.
bool has_nccl();

// Collective over `host`, each of whose ranks has a GPU of its own. Throws RunError if NCCL cannot connect the GPUs.
// `host` and `device` must outlive the result. `sum`: the kernel of sums in rank order; null: NCCL adds.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device,
                                                     std::shared_ptr<const RankSum> sum = nullptr);

}  // namespace dstrain
