#include "runtime/engine/run/run_steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "runtime/engine/run/trainer.h"

namespace dstrain {
namespace {

template <class T>
std::string first_other_value(std::string_view what, const std::vector<T>& a,
                              const std::vector<T>& b) {
  using Bytes = std::array<std::byte, sizeof(T)>;
  if (a.size() != b.size()) return fmt::format("{}: {} and {} values", what, a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<Bytes>(a[i]) != std::bit_cast<Bytes>(b[i]))
      return fmt::format("{} {}: {} and {}", what, i, a[i], b[i]);
  return {};
}

// Returns all masters on rank 0, by parameter. Collective.
std::vector<float> masters(Trainer& trainer) {
  std::map<std::string, std::vector<float>> weights;  // the pieces come in no particular order
  trainer.model().collect_weights(
      trainer.mesh(), [&](const Parameter& p, int64_t begin, const Tensor& values) {
        std::vector<float>& all = weights[p.name];
        all.resize(static_cast<size_t>(p.shape.elements()));
        std::copy_n(values.as<float>(), values.elements(), all.begin() + begin);
      });
  std::vector<float> joined;
  for (const auto& [name, values] : weights)
    joined.insert(joined.end(), values.begin(), values.end());
  return joined;
}

}  // namespace

RunResult run_steps(const Job& job, const Dataset& data, RunContext& context, int steps,
                    Backend backend) {
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
  if (job.optimizer.ema_decay > 0) {
    trainer.model().exchange_averages();
    result.averages = masters(trainer);
    trainer.model().exchange_averages();
  }
  result.weights = masters(trainer);
  trainer.model().collect_buffers(
      trainer.mesh(), [&](const RegisteredBuffer&, const Tensor& values) {
        const auto* const first = values.as<const float>();
        result.buffers.insert(result.buffers.end(), first, first + values.elements());
      });
  return result;
}

std::string difference(const RunResult& a, const RunResult& b, Communicator& comm) {
  std::string text = first_other_value("loss of step", a.loss, b.loss);
  if (text.empty()) text = first_other_value("norm of step", a.norm, b.norm);
  if (text.empty()) text = first_other_value("skip of step", a.skipped, b.skipped);
  if (text.empty()) text = first_other_value("scale of step", a.scale, b.scale);
  if (text.empty()) text = first_other_value("weight", a.weights, b.weights);
  if (text.empty()) text = first_other_value("average", a.averages, b.averages);
  if (text.empty()) text = first_other_value("buffer element", a.buffers, b.buffers);
  const double mine = text.empty() ? 0 : 1;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  for (size_t r = 0; r < all.size() && text.empty(); ++r)
    if (all[r] != 0) text = fmt::format("a difference on rank {}", r);
  return text;
}

}  // namespace dstrain
