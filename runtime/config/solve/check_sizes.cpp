#include "runtime/config/solve/check_sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr int64_t kMostLayerPasses = int64_t{1} << 18;

constexpr std::string_view kTrainBatch = "train_batch_size",
                           kMicroBatch = "train_micro_batch_size_per_gpu",
                           kAccumulationSteps = "gradient_accumulation_steps",
                           kRunSteps = "dstrain.steps", kModel = "dstrain.model",
                           kLayers = "dstrain.model.n_layer",
                           kBlockSize = "dstrain.model.block_size";

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
  const int64_t samples = job.batch.micro_batch;
  const int64_t tokens = job.model.kind == ModelKind::gptlite ? job.model.block_size : 1;
  if (samples <= most_rows / tokens) return true;
  const std::string_view key = first_given(values, {kMicroBatch, kTrainBatch, kBlockSize});
  const std::string follows =
      key == kTrainBatch ? fmt::format("a {} of {} follows from it: ", kMicroBatch, samples) : "";
  const std::string use = key == kMicroBatch ? "" : fmt::format("a {} of ", kMicroBatch);
  diagnostics.error(key,
                    fmt::format("{}{} of {} are more than the {} rows that a product can have: use "
                                "{}at most {}",
                                follows, counted(samples, "sample"), counted(tokens, "token"),
                                most_rows, use, most_rows / tokens),
                    {kBlockSize});
  return false;
}

// Limits the size of a plan and the time of planning: a plan lists every instruction of a step, for each layer
// and micro-batch.
void check_plan_size(const Job& job, const Values& values, Diagnostics& diagnostics) {
  const int64_t layers = job.model.n_layer,
                micro_batches = std::max<int64_t>(job.batch.accumulation, 1);
  if (micro_batches <= kMostLayerPasses / layers) return;
  diagnostics.error(
      first_given(values, {kAccumulationSteps, kTrainBatch}),
      fmt::format("{} micro-batches a step through {} are more than the {} passes through a layer "
                  "that a plan can hold: at most {} micro-batches; use a larger "
                  "train_micro_batch_size_per_gpu, or a smaller train_batch_size",
                  micro_batches, counted(layers, "layer"), kMostLayerPasses,
                  kMostLayerPasses / layers),
      {kLayers});
}

// Numbers of elements. Doubles do not overflow.
struct Sizes {
  double parameters = 0;
  double activations = 0;  // of a sample, at most
};

Sizes sizes_of(const ModelConfig& m) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const double layers = d(m.n_layer);
  if (m.kind == ModelKind::gptlite) {
    const double width = std::max(d(m.vocab_size), 4.0 * d(m.n_embd));
    return {layers * 13.0 * d(m.n_embd) * d(m.n_embd) +
                (2.0 * d(m.vocab_size) + d(m.block_size)) * d(m.n_embd),
            d(m.block_size) * (width + d(m.n_head)) * (layers + 1)};
  }
  const double in = d(m.in_size), hidden = d(m.hidden_size), out = d(m.out_size);
  if (m.n_layer == 1) return {(in + 1) * out, in + out};
  return {(in + 1) * hidden + (layers - 2) * (hidden + 1) * hidden + (hidden + 1) * out,
          in + (layers - 1) * hidden + out};
}

}  // namespace

void check_sizes(const Job& job, const Values& values, Diagnostics& diagnostics) {
  check_plan_size(job, values, diagnostics);
  const bool rows_fit = check_rows(job, values, diagnostics);
  // The limit leaves room for sums, padding and bytes per element.
  constexpr double limit = 0x1p55;
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const auto [parameters, activations] = sizes_of(job.model);
  const Diagnostics::Keys sizes = {kLayers,
                                   kBlockSize,
                                   "dstrain.model.n_embd",
                                   "dstrain.model.n_head",
                                   "dstrain.model.vocab_size",
                                   "dstrain.model.in_size",
                                   "dstrain.model.hidden_size",
                                   "dstrain.model.out_size"};
  if (parameters > limit)
    diagnostics.error(
        kModel, fmt::format("about {:.1e} parameters are more than can be counted", parameters),
        sizes);
  else if (const bool wide = activations > limit;
           wide || (rows_fit && activations * d(job.batch.micro_batch) > limit))
    diagnostics.error(
        wide ? kModel : first_given(values, {kMicroBatch, kTrainBatch, kModel}),
        fmt::format("about {:.1e} activations of a micro-batch are more than can be counted",
                    activations * std::max(1.0, d(job.batch.micro_batch))),
        sizes);
  if (d(job.steps) * d(job.batch.train_batch) > 0x1p62)
    diagnostics.error(
        first_given(values, {kRunSteps, kTrainBatch, kMicroBatch, kAccumulationSteps}),
        fmt::format("{}{} of {} are more than can be counted", counted(job.steps, "step"),
                    values.given(kRunSteps) ? "" : fmt::format(" ({}, by default)", kRunSteps),
                    counted(job.batch.train_batch, "sample")),
        {kRunSteps});
}

}  // namespace dstrain
