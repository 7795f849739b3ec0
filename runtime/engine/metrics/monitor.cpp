#include "runtime/engine/metrics/monitor.h"

namespace dstrain {

std::vector<TaggedValue> tagged_values(const StepMetrics& m, bool loss_scale) {
  std::vector<TaggedValue> values{{"Train/Samples/train_loss", m.loss}, {"Train/Samples/lr", m.lr}};
  if (loss_scale) values.push_back({"Train/Samples/loss_scale", m.loss_scale});
  if (m.phases) {
    const PhaseTimes times = m.phases->all();
    const std::string prefix = "Train/Samples/elapsed_time_ms_";
    values.push_back({prefix + "forward", times.forward});
    values.push_back({prefix + "backward", times.backward()});
    values.push_back({prefix + "backward_inner", times.backward_inner});
    values.push_back({prefix + "backward_allreduce", times.backward_allreduce});
    values.push_back({prefix + "step", times.step});
  }
  values.push_back({"dstrain/grad_norm", m.grad_norm});
  const double seconds = m.step_ms / 1e3;
  if (seconds > 0)
    values.push_back({"dstrain/tokens_per_second", static_cast<double>(m.tokens) / seconds});
  values.push_back({"dstrain/samples_per_second", m.samples_per_second});
  values.push_back({"dstrain/step_ms", m.step_ms});
  values.push_back({"dstrain/peak_bytes", static_cast<double>(m.peak_bytes)});
  values.push_back({"dstrain/comm_bytes", static_cast<double>(m.comm_bytes)});
  if (m.host_bytes != 0)
    values.push_back({"dstrain/host_bytes", static_cast<double>(m.host_bytes)});
  if (m.disk_bytes != 0)
    values.push_back({"dstrain/disk_bytes", static_cast<double>(m.disk_bytes)});
  for (const auto& [name, error] : m.codec_error)
    values.push_back({"dstrain/codec_error/" + name, error});
  for (const auto& [name, loss] : m.losses) values.push_back({"dstrain/losses/" + name, loss});
  for (const auto& [name, value] : m.metrics) values.push_back({"dstrain/metrics/" + name, value});
  return values;
}

std::vector<TaggedValue> tagged_values(const ValidationMetrics& m) {
  std::vector<TaggedValue> values{{"Train/Samples/eval_loss", m.loss}};
  for (const auto& [name, loss] : m.losses) values.push_back({"dstrain/val_losses/" + name, loss});
  for (const auto& [name, value] : m.metrics)
    values.push_back({"dstrain/val_metrics/" + name, value});
  return values;
}

void Monitor::step(const StepMetrics& metrics) {
  write(metrics.samples, tagged_values(metrics, options_.loss_scale));
}

void Monitor::validation(const ValidationMetrics& metrics) {
  const bool repeats = options_.resumed_validated && metrics.samples == options_.resumed_samples;
  if (!repeats) write(metrics.samples, tagged_values(metrics));
}

}  // namespace dstrain
