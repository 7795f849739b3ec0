// make_device_communicator(): chooses the transport of a device's memory.
#pragma once

#include <memory>

#include "runtime/comm/devices/stream_transport.h"

namespace dstrain {

// Collective. Returns a communicator of the memory of `device` for the ranks of `host`: over the transport that
// `connect` connects; if it is empty over NCCL, if this build has it and every rank has a GPU of its own; else one that
// stages tensors through the host, as one rank always has. Returns null if the host reads the device's memory itself;
// then `host` is the communicator to use. `host` and `device` must outlive the result.
std::unique_ptr<Communicator> make_device_communicator(Communicator& host, Device& device,
                                                       const ConnectTransport& connect = {});

}  // namespace dstrain
