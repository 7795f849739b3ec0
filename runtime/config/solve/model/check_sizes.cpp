#include "runtime/config/solve/model/check_sizes.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

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

// Returns the key of the tokens of a sample; the section where the model has none.
std::string context_path(const ModelConfig& model) {
  const std::string_view key = model.family().context_key();
  return key.empty() ? std::string(kModel) : model_path(key);
}

// Returns whether a product can have the rows of a micro-batch, one for each of its tokens, and reports it otherwise.
bool check_rows(const Job& job, const Values& values, Diagnostics& diagnostics) {
  constexpr int64_t most_rows = 2147483647;
  const int64_t samples = job.batch.micro_batch;
  const int64_t tokens = job.model.seq_len();
  if (samples <= most_rows / tokens) return true;
  const std::string context = context_path(job.model);
  const std::string_view key = first_given(values, {kMicroBatch, kTrainBatch, context});
  const std::string follows =
      key == kTrainBatch ? fmt::format("a {} of {} follows from it: ", kMicroBatch, samples) : "";
  const std::string use = key == kMicroBatch ? "" : fmt::format("a {} of ", kMicroBatch);
  diagnostics.error(key,
                    fmt::format("{}{} of {} are more than the {} rows that a product can have: use "
                                "{}at most {}",
                                follows, counted(samples, "sample"), counted(tokens, "token"),
                                most_rows, use, most_rows / tokens),
                    {context});
  return false;
}

// Limits the size of a plan and the time of planning: a plan lists every instruction of a step, for each layer
// and micro-batch.
void check_plan_size(const Job& job, const Values& values, Diagnostics& diagnostics) {
  const int64_t layers = std::max<int64_t>(job.model.layers(), 1),
                micro_batches = std::max<int64_t>(job.batch.accumulation, 1);
  if (micro_batches <= kMostLayerPasses / layers) return;
  diagnostics.error(
      first_given(values, {kAccumulationSteps, kTrainBatch}),
      fmt::format("{} micro-batches a step through {} are more than the {} passes through a layer "
                  "that a plan can hold: at most {} micro-batches; use a larger "
                  "train_micro_batch_size_per_gpu, or a smaller train_batch_size",
                  micro_batches, counted(layers, "layer"), kMostLayerPasses,
                  kMostLayerPasses / layers),
      {model_path(job.model.family().layers_key)});
}

constexpr double as_double(int64_t n) {
  return static_cast<double>(n);
}

// Limits the model, and with `rows_fit` the micro-batch, to numbers of elements that 63 bits can hold.
void check_elements(const Job& job, const Values& values, Diagnostics& diagnostics, bool rows_fit) {
  // The limit leaves room for sums, padding and bytes per element.
  constexpr double limit = 0x1p55;
  const bool unknown = std::ranges::any_of(job.model.family().keys, [&](const ModelKey& key) {
    return diagnostics.stopped(key.spec.key);  // its default was used instead
  });
  if (unknown) return;
  const ModelMeasures model = job.model.measures();
  const double samples = as_double(job.batch.micro_batch);
  const bool wide = model.activations > limit;
  if (model.parameters > limit)
    diagnostics.error(kModel, fmt::format("about {:.1e} parameters are more than can be counted",
                                          model.parameters));
  else if (wide || (rows_fit && model.activations * samples > limit))
    diagnostics.error(
        wide ? kModel : first_given(values, {kMicroBatch, kTrainBatch, kModel}),
        fmt::format("about {:.1e} activations of a micro-batch are more than can be counted",
                    model.activations * std::max(1.0, samples)));
}

}  // namespace

void check_sizes(const Job& job, const Values& values, Diagnostics& diagnostics) {
  check_plan_size(job, values, diagnostics);
  check_elements(job, values, diagnostics, check_rows(job, values, diagnostics));
  if (as_double(job.steps) * as_double(job.batch.train_batch) > 0x1p62)
    diagnostics.error(
        first_given(values, {kRunSteps, kTrainBatch, kMicroBatch, kAccumulationSteps}),
        fmt::format("{}{} of {} are more than can be counted", counted(job.steps, "step"),
                    values.given(kRunSteps) ? "" : fmt::format(" ({}, by default)", kRunSteps),
                    counted(job.batch.train_batch, "sample")),
        {kRunSteps});
}

}  // namespace dstrain
