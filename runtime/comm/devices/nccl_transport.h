// NCCL as a StreamTransport, between GPUs. A build without NCCL has these functions too (no_nccl.cpp).
#pragma once

#include "runtime/comm/devices/stream_transport.h"

namespace dstrain {

// Returns whether this build has NCCL.
bool has_nccl();

// A ConnectTransport: every rank of `host` has a GPU of its own. Throws RunError if NCCL cannot connect the GPUs.
std::unique_ptr<StreamTransport> connect_nccl(Communicator& host, Device& device,
                                              const std::atomic<double>& deadline_seconds);

}  // namespace dstrain
