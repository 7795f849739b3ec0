#include "tests/engine/stages/run_steps.h"

#include <fmt/core.h>

#include <cstring>
#include <map>

#include "launcher/implementations.h"
#include "runtime/config/model/family.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/optim/optimizer_rule.h"

namespace dstrain {
namespace {

template <class T>
std::string first_difference(std::string_view what, const std::vector<T>& a,
                             const std::vector<T>& b) {
  if (a.size() != b.size()) return fmt::format("{}: {} and {} values", what, a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0)
      return fmt::format("{} {}: {} and {}", what, i, a[i], b[i]);
  return {};
}

}  // namespace

RunResult run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps,
                    int threads) {
  return run_steps(job, data, comm, steps, threads, make_backend(implementations(), job.device));
}

RunResult run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps, int threads,
                    Backend backend) {
  RunContext context{implementations()};
  context.comm = &comm;
  context.threads = threads;
  Trainer trainer(job, data, context, std::move(backend));
  trainer.load();
  RunResult result;
  result.planned_bytes = trainer.memory().total();
  result.planned_host_bytes = trainer.memory().total(Space::host);
  result.planned_disk_bytes = trainer.memory().total(Space::disk);
  result.planned_to_send = wire_bytes(trainer.plan());
  for (int i = 0; i < steps; ++i) {
    const int64_t before = trainer.communicator().wire_bytes();
    trainer.step();
    const StepState& s = trainer.state();
    result.loss.push_back(s.loss_sum);
    result.norm.push_back(s.grad_norm);
    result.skipped.push_back(s.skip);
    result.scale.push_back(s.loss_scale);
    result.sent_per_step = trainer.communicator().wire_bytes() - before;
  }
  std::map<std::string, std::vector<float>> weights;  // the pieces come in no particular order
  trainer.model().collect_weights(
      trainer.mesh(), [&](const Parameter& p, int64_t begin, const Tensor& values) {
        std::vector<float>& all = weights[p.name];
        all.resize(static_cast<size_t>(p.shape.elements()));
        std::copy_n(values.as<float>(), values.elements(), all.begin() + begin);
      });
  for (const auto& [name, values] : weights)
    result.weights.insert(result.weights.end(), values.begin(), values.end());
  trainer.model().collect_buffers(
      trainer.mesh(), [&](const RegisteredBuffer&, const Tensor& values) {
        const auto* const first = values.as<const float>();
        result.buffers.insert(result.buffers.end(), first, first + values.elements());
      });
  return result;
}

std::string difference(const RunResult& a, const RunResult& b, Communicator& comm) {
  std::string text = first_difference("loss of step", a.loss, b.loss);
  if (text.empty()) text = first_difference("norm of step", a.norm, b.norm);
  if (text.empty()) text = first_difference("skip of step", a.skipped, b.skipped);
  if (text.empty()) text = first_difference("scale of step", a.scale, b.scale);
  if (text.empty()) text = first_difference("weight", a.weights, b.weights);
  if (text.empty()) text = first_difference("buffer element", a.buffers, b.buffers);
  const double mine = text.empty() ? 0 : 1;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  for (size_t r = 0; r < all.size() && text.empty(); ++r)
    if (all[r] != 0) text = fmt::format("a difference on rank {}", r);
  return text;
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
