#include "runtime/config/solve/check_sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

namespace dstrain {
namespace {

constexpr int64_t kMostLayers = 2048;
constexpr int64_t kMostLayerPasses = int64_t{1} << 18;

constexpr std::string_view kTrainBatch = "train_batch_size",
                           kMicroBatch = "train_micro_batch_size_per_gpu",
                           kAccumulationSteps = "gradient_accumulation_steps",
                           kRunSteps = "dstrain.steps", kModel = "dstrain.model";

// Returns the first of `keys` that the configuration has, so that an error of a value that follows from others names
// what can be changed; the first of all if it has none.
std::string_view first_given(const Values& values, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (values.given(key)) return key;
  return *keys.begin();
}

// Returns whether a product can have the rows of a micro-batch, one for each of its tokens, and reports it otherwise.
bool check_rows(const Job& job, const Values& values, Diagnostics& diagnostics) {
  constexpr int64_t most_rows = 2147483647;
  constexpr std::string_view block_size = "dstrain.model.block_size";
  const int64_t samples = job.batch.micro_batch;
  const int64_t tokens = job.model.kind == ModelKind::gptlite ? job.model.block_size : 1;
  if (samples <= most_rows / tokens) return true;
  const std::string_view key = first_given(values, {kMicroBatch, kTrainBatch, block_size});
  const std::string follows =
      key == kTrainBatch ? fmt::format("a {} of {} follows from it: ", kMicroBatch, samples) : "";
  const std::string use = key == kMicroBatch ? "" : fmt::format("a {} of ", kMicroBatch);
  diagnostics.error(key, fmt::format("{}{} samples of {} tokens are more than the {} rows that a "
                                     "product can have: use {}at most {}",
                                     follows, samples, tokens, most_rows, use, most_rows / tokens));
  return false;
}

// Limits the size of a plan and the time of planning: a plan lists every instruction of a step, for each layer
// and micro-batch.
void check_plan_size(const Job& job, const Values& values, Diagnostics& diagnostics) {
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
        first_given(values, {kAccumulationSteps, kTrainBatch}),
        fmt::format(
            "{} micro-batches a step through {} layer{} are more than the {} passes through a "
            "layer that a plan can hold: at most {} micro-batches; use a larger "
            "train_micro_batch_size_per_gpu, or a smaller train_batch_size",
            micro_batches, layers, layers == 1 ? "" : "s", kMostLayerPasses,
            kMostLayerPasses / std::max<int64_t>(layers, 1)));
}

}  // namespace

void check_sizes(const Job& job, const Values& values, Diagnostics& diagnostics) {
  check_plan_size(job, values, diagnostics);
  const bool rows_fit = check_rows(job, values, diagnostics);
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
  if (parameters > limit)
    diagnostics.error(
        kModel, fmt::format("about {:.1e} parameters are more than can be counted", parameters));
  else if (const bool wide = widest > limit;
           wide || (rows_fit && widest * d(job.batch.micro_batch) > limit))
    diagnostics.error(
        wide ? kModel : first_given(values, {kMicroBatch, kTrainBatch, kModel}),
        fmt::format("about {:.1e} activations of a micro-batch are more than can be counted",
                    widest * std::max(1.0, d(job.batch.micro_batch))));
  if (d(job.steps) * d(job.batch.train_batch) > 0x1p62)
    diagnostics.error(
        first_given(values, {kRunSteps, kTrainBatch, kMicroBatch, kAccumulationSteps}),
        fmt::format("{} steps{} of {} samples are more than can be counted", job.steps,
                    values.given(kRunSteps) ? "" : fmt::format(" ({}, by default)", kRunSteps),
                    job.batch.train_batch));
}

}  // namespace dstrain
