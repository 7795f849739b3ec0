// make_device_communicator(): chooses the transport of a device's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/devices/stream_transport.h"
#include "runtime/core/devices/rank_sum.h"

namespace dstrain {

// Returns for each device how many of the list are the same one. `identities`: `width` numbers for each.
std::vector<int> count_equal(std::span<const double> identities, size_t width);
// Collective. Returns how many ranks of `host` use this rank's GPU, itself included; 1 on other devices.
int ranks_on_device(Communicator& host, const Device& device);

// The settings of make_device_communicator(): the transport of a device's tensors, and the kernel of their sums.
struct DeviceCommOptions {
  ConnectTransport connect{};  // the transport to use; empty: NCCL where it can be
  // The kernel of sums in rank order; null: a transport of streams adds in an order of its own, and may round more than
  // once.
  std::shared_ptr<const RankSum> sum{};
};

// Collective. Returns a communicator of the memory of `device` for the ranks of `host`: over a transport of streams if
// there are several ranks, and `options` has one or NCCL can be used (this build has it and every rank has a GPU of its
// own); else one that stages tensors through the host. Returns null if the host reads the device's memory itself; then
// `host` is the communicator to use. `host` and `device` must outlive the result.
std::unique_ptr<Communicator> make_device_communicator(Communicator& host, Device& device,
                                                       const DeviceCommOptions& options = {});

}  // namespace dstrain
