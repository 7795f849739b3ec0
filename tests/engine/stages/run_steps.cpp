#include "tests/engine/stages/run_steps.h"

#include <fmt/core.h>

#include <utility>

#include "launcher/implementations.h"
#include "runtime/config/family/family.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
RunResult run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps,
                    int threads) {
  return run_steps(job, data, comm, steps, threads, make_backend(implementations(), job.device));
}

RunResult run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps, int threads,
                    Backend backend) {
  RunContext context{implementations()};
  context.comm = &comm;
  context.threads = threads;
  return run_steps(job, data, context, steps, std::move(backend));
}

std::string describe(const Job& job) {
  std::string model(job.model.family().type);
  for (const ModelKey& key : job.model.family().keys)
    model +=
        std::visit([&key](const auto& value) { return fmt::format(" {} {}", key.name(), value); },
                   job.model.value(key.name()));
  const GatherLimits& g = job.gather;
  return fmt::format(
      "{}, {} wire {} sums {}, batch {}x{}x{}, stage {} shards {} {}, bucket {}, overlap {}, "
      "prefetch {} "
      "persist {} "
      "live {} reuse {}, recompute {} {}, clip {}, {} decay exclude {}, offload {} {}, "
      "parameters {} of which in memory {}, activations {}, read ahead {}",
      model, name_of(job.dtype), name_of(job.wire_dtype), name_of(job.grad_dtype),
      job.batch.micro_batch, job.batch.accumulation, job.ranks, job.zero_stage, job.shards.ranks,
      job.reduce == ReduceMode::boundary ? "boundary" : "micro_batch", job.reduce_bucket_elements,
      job.overlap_comm, g.prefetch_elements, g.param_persistence, g.max_live_elements,
      g.max_reuse_distance, static_cast<int>(job.recompute.mode), job.recompute.interval,
      job.gradient_clipping, optimizer_rule(job.optimizer.kind).name(job.optimizer),
      job.weight_decay_exclude.size(), static_cast<int>(job.offload.optimizer),
      static_cast<int>(job.offload.optimizer_on), static_cast<int>(job.offload.parameters),
      job.offload.max_in_cpu, static_cast<int>(job.offload.activations), job.offload.read_ahead);
}

}  // namespace dstrain
