#include "runtime/config/solve/check_sizes.h"

#include <fmt/core.h>

#include <algorithm>

namespace dstrain {
namespace {

constexpr int64_t kMostLayers = 2048;
constexpr int64_t kMostLayerPasses = int64_t{1} << 18;

// Limits the size of a plan and the time of planning: a plan lists every instruction of a step, for each layer
// and micro-batch.
void check_plan_size(const Job& job, Diagnostics& diagnostics) {
  const int64_t layers = job.model.n_layer,
                micro_batches = std::max<int64_t>(job.batch.accumulation, 1);
  if (layers > kMostLayers)
    diagnostics.error(
        "dstrain.model.n_layer",
        fmt::format("{} layers are more than the {} that a plan can hold: use fewer, wider "
                    "layers",
                    layers, kMostLayers));
  else if (micro_batches > kMostLayerPasses / std::max<int64_t>(layers, 1))
    diagnostics.error(
        "gradient_accumulation_steps",
        fmt::format(
            "{} micro-batches a step through {} layer{} are more than the {} passes through a "
            "layer that a plan can hold: at most {} micro-batches; use a larger "
            "train_micro_batch_size_per_gpu, or a smaller train_batch_size",
            micro_batches, layers, layers == 1 ? "" : "s", kMostLayerPasses,
            kMostLayerPasses / std::max<int64_t>(layers, 1)));
}

}  // namespace

void check_sizes(const Job& job, Diagnostics& diagnostics) {
  check_plan_size(job, diagnostics);
  // Doubles do not overflow; the limit leaves room for sums, padding and bytes per element.
  constexpr double limit = 0x1p55;
  const ModelConfig& m = job.model;
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  double parameters = 0, widest = 0;
  if (m.kind == ModelKind::gptlite) {
    parameters = d(m.n_layer) * 13.0 * d(m.n_embd) * d(m.n_embd) +
                 (2.0 * d(m.vocab_size) + d(m.block_size)) * d(m.n_embd);
    const double width = std::max(d(m.vocab_size), 4.0 * d(m.n_embd));
    widest = d(m.block_size) * (width + d(m.n_head)) * (d(m.n_layer) + 1);
  } else {
    const double side = std::max(d(m.hidden_size), std::max(d(m.in_size), d(m.out_size)));
    parameters = d(m.n_layer) * side * (side + 1);
    widest = side * (d(m.n_layer) + 1);
  }
  // A product of a micro-batch has a row for each of its tokens.
  constexpr int64_t most_rows = 2147483647;
  const int64_t tokens = m.kind == ModelKind::gptlite ? m.block_size : 1;
  if (job.batch.micro_batch > most_rows / tokens)
    diagnostics.error(
        "train_micro_batch_size_per_gpu",
        fmt::format("{} samples of {} tokens are more than the {} rows that a product "
                    "can have: use at most {}",
                    job.batch.micro_batch, tokens, most_rows, most_rows / tokens));
  if (parameters > limit)
    diagnostics.error(
        "dstrain.model",
        fmt::format("about {:.1e} parameters are more than can be counted", parameters));
  else if (widest * std::max(1.0, d(job.batch.micro_batch)) > limit)
    diagnostics.error(
        "dstrain.model",
        fmt::format("about {:.1e} activations of a micro-batch are more than can be counted",
                    widest * std::max(1.0, d(job.batch.micro_batch))));
  if (d(job.steps) * d(job.batch.train_batch) > 0x1p62)
    diagnostics.error("dstrain.steps",
                      fmt::format("{} steps of {} samples are more than can be counted", job.steps,
                                  job.batch.train_batch));
}

}  // namespace dstrain
