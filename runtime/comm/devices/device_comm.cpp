#include "runtime/comm/devices/device_comm.h"

#include <vector>

#include "runtime/comm/devices/nccl_comm.h"
#include "runtime/comm/devices/staged_comm.h"
#include "runtime/comm/devices/stream_comm.h"
#include "runtime/core/devices/cuda_device.h"

namespace dstrain {
namespace {

// Collective. Returns whether every host has a GPU for each of its ranks.
bool gpu_for_each(Communicator& host) {
  const double mine = ranks_on_this_host_from_environment() <= cuda_device_count() ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(host.size()));
  host.gather_values({&mine, 1}, all);
  for (const double yes : all)
    if (yes == 0) return false;
  return true;
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(Communicator& host, Device& device,
                                                       const DeviceCommOptions& options) {
  if (device.is_host()) return nullptr;
  if (host.size() > 1) {
    if (options.connect)
      return std::make_unique<StreamComm>(host, device, options.connect, options.sum);
    if (device.kind() == DeviceKind::cuda && has_nccl() && gpu_for_each(host))
      return make_nccl_communicator(host, device, options.sum);
  }
  return std::make_unique<StagedComm>(host, device);
}

}  // namespace dstrain
