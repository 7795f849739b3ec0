#include "runtime/engine/run/device_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/text.h"
#include "runtime/plan/report/fit.h"

namespace dstrain {
namespace {

// Memory that CUDA and its libraries need on a GPU besides the plan, with a margin: the context, and the kernels of
// cuBLASLt, which are loaded when they are first used.
constexpr int64_t kCudaReserveBytes = int64_t{512} << 20;
// The buffers of one of NCCL's communicators, which are made at its first collective: 9.4 MiB for each of two neighbours
// in each of the 16 blocks that most_blocks() of runtime/comm/devices/nccl_comm.cpp allows (NCCL's default sizes: 4 MiB
// for the simple protocol, 4.7 for LL128, 0.5 for LL). Messages between two ranks have made theirs before.
constexpr int64_t kNcclGroupBytes = int64_t{304} << 20;

// Returns how many communicators carry collectives of a rank, if GPUs communicate by NCCL: that of the world, and those of
// smaller groups.
int64_t groups_of(const Job& job, const Place& place) {
  if (job.ranks == 1) return 0;
  const std::vector<Channel> channels = channels_of(place, job.pipeline.schedule);
  return 1 + std::ranges::count_if(channels, [&](const Channel& channel) {
           const int ranks = ranks_of(place, channel);
           return channel.is_group() && ranks > 1 && ranks < job.ranks;
         });
}

int64_t reserve_of(const Job& job, const Device& device, int sharing, int rank) {
  if (device.kind() != DeviceKind::cuda) return 0;
  const int64_t groups = sharing > 1 ? 0 : groups_of(job, place_of(job, rank));
  return kCudaReserveBytes + groups * kNcclGroupBytes;
}

}  // namespace

void check_device_memory(const Job& job, const MemoryTable& memory, const Device& device,
                         int sharing, Communicator& host, const PlanInputs& inputs) {
  const DeviceBytes has = device.memory();
  const int64_t reserve = reserve_of(job, device, sharing, host.rank());
  const int64_t needed = memory.total() + reserve;
  const bool over = job.device_memory > 0 && memory.total() > job.device_memory;
  const std::array<double, 1> lacks{over || (has.total > 0 && needed > has.free / sharing) ? 1.0
                                                                                           : 0};
  std::vector<double> all(static_cast<size_t>(host.size()));
  host.gather_values(lacks, all);
  if (over) fail_user("{}", lack_of_device_memory(job, inputs));
  if (lacks[0] != 0)
    fail_user(
        "the run needs {} on each GPU ({} x {}), and {} are free of {}'s {}: {}; "
        "'dstrain plan' shows what takes the memory",
        bytes_text(static_cast<double>(needed) * sharing), counted(sharing, "rank"),
        bytes_text(static_cast<double>(needed)), bytes_text(static_cast<double>(has.free)),
        device.name(), bytes_text(static_cast<double>(has.total)),
        advice_to_fit(job, has.free / sharing - reserve, inputs));
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r] != 0)
      fail_user("rank {}'s device has too little free memory; see the message of that rank", r);
}

}  // namespace dstrain
