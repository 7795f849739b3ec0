// The communicator of a device's memory, over a host communicator of the same ranks.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

// Null where the host reads the device's memory itself, so that `host` is the one to use. Else NCCL,
// where this build has it and every rank has a GPU of its own, and otherwise the way through the host.
// Collective; `host` and `device` outlive the answer.
std::unique_ptr<Communicator> make_device_communicator(Communicator& host, Device& device);

}  // namespace dstrain
