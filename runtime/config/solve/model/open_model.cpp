#include "runtime/config/solve/model/open_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/solve/data/data_names.h"
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

// Returns whether a number says what a model without the key has anyway: a resolved configuration says it of all.
bool is_zero(const Node& value) {
  return (value.is(Node::Kind::integer) || value.is(Node::Kind::real)) && value.real == 0;
}

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

// Returns the names of the data files, as they are written.
std::vector<std::string> paths_of(const Values& values) {
  std::vector<std::string> paths;
  const Member* const given = values.given("dstrain.data.path");
  if (!given) return paths;
  if (given->value.is(Node::Kind::string)) paths.push_back(given->value.text);
  for (const Node& item : given->value.items) paths.push_back(item.text);
  return paths;
}

// Returns what the data are, by the format, or by their names and by what the model says of its inputs.
GivenData given_data(const ModelConfig& model, const Values& values, Diagnostics& diagnostics) {
  const std::string inputs_key = model_path(model.family().inputs_key);
  const bool says_texts = !model.text(model.family().inputs_key).empty();
  const Member* const given = values.given("dstrain.data.format");
  const std::string format = given ? lower_case(given->value.text) : "auto";
  if (format == "images") return GivenData::images;
  if (format == "arrays" && says_texts)
    diagnostics.error(inputs_key,
                      "says what texts give each input, and dstrain.data.format is \"arrays\", "
                      "which have the names of the inputs: remove one of the two",
                      {"dstrain.data.format"});
  if (format != "auto") return format == "arrays" ? GivenData::arrays : GivenData::texts;
  const std::vector<std::string> paths = paths_of(values);
  if (are_all(paths, names_images)) return GivenData::images;
  if (says_texts) return GivenData::texts;
  if (paths.empty()) return GivenData::unknown;
  return are_all(paths, names_arrays) ? GivenData::arrays : GivenData::texts;
}

}  // namespace

void open_model(Job& job, Values& values, Diagnostics& diagnostics, const ConfigRequest& request) {
  const ModelFamily& all = job.model.family();
  if (!all.open) return;
  for (const ModelKey& key : all.keys)
    if (diagnostics.stopped(key.spec.key)) return;
  if (request.init_weights == kFreshWeights)
    fail_user(
        "--init_weights {}: the file of the {} does not say how its weights begin: leave the "
        "option out for the weights of the file, or name others",
        kFreshWeights, all.title);
  const GivenData data = given_data(job.model, values, diagnostics);
  ModelConfig model(all.open(job.model, data));
  for (const ModelKey& key : all.keys) model.set(key.name(), job.model.value(key.name()));
  job.model = model;
  for (const std::string& warning : model.family().warnings)
    diagnostics.warning(model_path(all.file_key), warning);
  for (const Missing& missing : kMissing)
    if (const Member* given = values.given(missing.key); given && !is_zero(given->value))
      diagnostics.error(missing.key, fmt::format("an {} has none: {}", all.title, missing.why));
  refuse_division(job, diagnostics);
  check_batch(job, diagnostics);
}

}  // namespace dstrain
