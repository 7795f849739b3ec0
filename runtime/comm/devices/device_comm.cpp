#include "runtime/comm/devices/device_comm.h"

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/comm/devices/nccl_comm.h"
#include "runtime/comm/devices/staged_comm.h"
#include "runtime/comm/devices/stream_comm.h"
#include "runtime/core/devices/cuda_device.h"

namespace dstrain {
namespace {

// Collective. Returns for each rank how many have its device.
std::vector<int> sharing_ranks(Communicator& host, const Device& device) {
  if (device.kind() != DeviceKind::cuda)
    return std::vector<int>(static_cast<size_t>(host.size()), 1);
  const auto mine = cuda_identity(device);
  std::vector<double> all(mine.size() * static_cast<size_t>(host.size()));
  host.gather_values(mine, all);
  return count_equal(all, mine.size());
}

bool gpu_for_each(Communicator& host, const Device& device) {
  return std::ranges::all_of(sharing_ranks(host, device), [](int ranks) { return ranks == 1; });
}

}  // namespace

std::vector<int> count_equal(std::span<const double> identities, size_t width) {
  std::map<std::vector<double>, int> counts;
  const auto at = [&](size_t i) {
    const auto one = identities.subspan(i, width);
    return std::vector<double>(one.begin(), one.end());
  };
  for (size_t i = 0; i < identities.size(); i += width) ++counts[at(i)];
  std::vector<int> equal;
  for (size_t i = 0; i < identities.size(); i += width) equal.push_back(counts[at(i)]);
  return equal;
}

int ranks_on_device(Communicator& host, const Device& device) {
  return sharing_ranks(host, device)[static_cast<size_t>(host.rank())];
}

std::unique_ptr<Communicator> make_device_communicator(Communicator& host, Device& device,
                                                       const DeviceCommOptions& options) {
  if (device.is_host()) return nullptr;
  if (host.size() > 1) {
    if (options.connect)
      return std::make_unique<StreamComm>(host, device, options.connect, options.sum);
    if (device.kind() == DeviceKind::cuda && has_nccl() && gpu_for_each(host, device))
      return make_nccl_communicator(host, device, options.sum);
  }
  return std::make_unique<StagedComm>(host, device);
}

}  // namespace dstrain
