#include "launcher/implementations.h"

#include "kernels/cpu/memory_bound/init_weights.h"
#include "kernels/kernel_library.h"
#include "runtime/core/cpu.h"

namespace dstrain {

const Implementations& implementations() {
  static constexpr Implementations kImplementations{.make_library = make_kernel_library,
                                                    .fill_normal = fill_normal,
                                                    .fill_uniform = fill_uniform};
  return kImplementations;
}

PlanInputs plan_inputs(const Job& job, int ranks_on_host) {
  const int asked_for = threads_asked_for();
  const int share = threads_per_rank(ranks_on_host > 0 ? ranks_on_host : job.ranks);
  return {make_planning_library(implementations(), kind_of(job.device)),
          asked_for > 0 ? asked_for : share,
          make_planning_library(implementations(), DeviceKind::cpu), rates_of(job.device)};
}

}  // namespace dstrain
