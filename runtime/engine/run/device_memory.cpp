#include "runtime/engine/run/device_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/plan/cost/nccl_memory.h"
#include "runtime/plan/settings/fit.h"
#include "runtime/plan/settings/open_settings.h"

namespace dstrain {
namespace {

// Memory that CUDA and its libraries need on a GPU besides the plan, with a margin: the context, and the kernels of
// cuBLASLt, which are loaded when they are first used.
constexpr int64_t kCudaReserveBytes = int64_t{512} << 20;

int64_t reserve_of(const Job& job, const Device& device, int sharing, int rank) {
  if (device.kind() != DeviceKind::cuda) return 0;
  // Communicators exist, and what they connect at their first collective is to come.
  const int64_t nccl = sharing > 1 ? 0 : nccl_bytes_to_come(job, place_of(job, rank));
  return kCudaReserveBytes + nccl;
}

// What this rank's device lacks, and which ranks' devices lack memory at all.
struct Lack {
  DeviceBytes has{};
  int64_t reserve = 0, needed = 0;
  bool over_limit = false;      // of job.device_memory
  std::vector<double> ranks{};  // 1: the rank's device lacks memory
};

Lack find_lack(const Job& job, const MemoryTable& memory, const Device& device, int sharing,
               Communicator& host) {
  Lack lack{.has = device.memory(), .reserve = reserve_of(job, device, sharing, host.rank())};
  lack.needed = memory.total() + lack.reserve;
  lack.over_limit = job.device_memory > 0 && memory.total() > job.device_memory;
  const bool lacks =
      lack.over_limit || (lack.has.total > 0 && lack.needed > lack.has.free / sharing);
  lack.ranks.resize(static_cast<size_t>(host.size()));
  host.gather_values(std::array<double, 1>{lacks ? 1.0 : 0}, lack.ranks);
  return lack;
}

bool suffices(const Lack& lack) {
  return std::ranges::all_of(lack.ranks, [](double lacks) { return lacks == 0; });
}

}  // namespace

void check_device_memory(const Job& job, const MemoryTable& memory, const Device& device,
                         int sharing, Communicator& host, const PlanInputs& inputs) {
  const auto [has, reserve, needed, over, all] = find_lack(job, memory, device, sharing, host);
  if (over) {
    PlannedMemory mine;
    mine.device = memory.total();
    fail_user("{}", lack_of_device_memory(job, mine, inputs));
  }
  if (all[static_cast<size_t>(host.rank())] != 0)
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

RankPlan plan_that_fits(const Job& job, const Device& device, int sharing, Communicator& host,
                        const PlanInputs& inputs) {
  const Place place = place_of(job, host.rank());
  RankPlan plan = make_rank_plan(job, place, inputs);
  if (!suffices(find_lack(job, plan.memory, device, sharing, host))) {
    const std::optional<Job> settled = made_to_fit(job, [&](const Job& changed) {
      const RankPlan smaller = make_rank_plan(changed, place, inputs);
      return suffices(find_lack(changed, smaller.memory, device, sharing, host));
    });
    if (settled) {
      if (host.rank() == 0)
        for (const SettledSetting& setting : settled_between(job, *settled))
          log::info("{} {}: {} on the devices", setting.key, setting.value, setting.why);
      return make_rank_plan(*settled, place, inputs);
    }
  }
  check_device_memory(job, plan.memory, device, sharing, host, inputs);
  return plan;
}

}  // namespace dstrain
