#include "runtime/config/solve/model/open_model.h"

#include <fmt/core.h>

#include "runtime/config/model/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// A key of which the model of a file has none, and why.
struct Missing {
  std::string_view key, why;
};

constexpr Missing kMissing[] = {
    {"dstrain.label_smoothing", "its loss is its own: export the model with it"},
    {"dstrain.z_loss", "its loss is its own: export the model with it"},
    {"dstrain.lora",
     "adapters are for the built-in models: train it whole, or some parameters by "
     "dstrain.parameter_groups"},
};

void refuse_division(const Job& job, Diagnostics& diagnostics) {
  const auto refuse = [&](std::string_view key) {
    diagnostics.error(key, fmt::format("the layers of an {} are not divided among ranks: use ZeRO "
                                       "stages, pipeline.stages or offload",
                                       job.model.family().title));
  };
  if (job.tensor_ranks > 1) refuse("tensor_parallel.autotp_size");
  if (job.sequence_ranks > 1) refuse("sequence_parallel_size");
}

void check_batch(const Job& job, Diagnostics& diagnostics) {
  const int64_t batch = job.model.family().batch;
  if (batch == 0 || job.batch.micro_batch == batch) return;
  diagnostics.error("train_micro_batch_size_per_gpu",
                    fmt::format("the model was exported for batches of {}, and the micro-batch is "
                                "{}: use {}, or export the model with dynamic_shapes, so that the "
                                "batch is free",
                                counted(batch, "sample"), job.batch.micro_batch, batch));
}

}  // namespace

void open_model(Job& job, Values& values, Diagnostics& diagnostics, const ConfigRequest& request) {
  const ModelFamily& all = job.model.family();
  if (!all.open || diagnostics.stopped(model_path(all.file_key))) return;
  if (request.init_weights == kFreshWeights)
    fail_user(
        "--init_weights {}: the file of the {} does not say how its weights begin: leave the "
        "option out for the weights of the file, or name others",
        kFreshWeights, all.title);
  const Member* const format = values.given("dstrain.data.format");
  const bool arrays = format && lower_case(format->value.text) == "arrays";
  ModelConfig model(all.open(job.model, arrays));
  for (const ModelKey& key : all.keys) model.set(key.name(), job.model.value(key.name()));
  job.model = model;
  for (const Missing& missing : kMissing)
    if (values.given(missing.key))
      diagnostics.error(missing.key, fmt::format("an {} has none: {}", all.title, missing.why));
  refuse_division(job, diagnostics);
  check_batch(job, diagnostics);
}

}  // namespace dstrain
