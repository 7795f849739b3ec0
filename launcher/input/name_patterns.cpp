#include "launcher/input/name_patterns.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

#include "runtime/config/model/family.h"
#include "runtime/config/pipeline_schedule.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/pipeline/partition.h"

namespace dstrain {
namespace {

constexpr const char* kExclude = "dstrain.weight_decay_exclude";
constexpr const char* kPartition = "pipeline.partition";

// Returns the model's forward pass, with any vocabulary where its size is unknown.
Program forward_of(ModelConfig model) {
  if (model.family().reads_tokens()) model.set_vocabulary(std::max<int64_t>(model.vocabulary(), 1));
  Program program;
  Builder builder(program, {});
  build_model(builder, model);
  return program;
}

// Returns whether `pattern` matches a weight of the model. All layers after the third are like it.
bool names_a_weight(const std::string& pattern, const StateRegister& three_layers, int64_t layers) {
  const auto matches = [&pattern](const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  for (int64_t layer = 2; layer < std::max<int64_t>(layers, 3); ++layer)
    for (const StateEntry& weight : three_layers) {
      const size_t number = weight.name.find(".2.");
      if (layer == 2 ? matches(weight.name)
                     : number != std::string::npos &&
                           matches(fmt::format("{}.{}.{}", weight.name.substr(0, number), layer,
                                               weight.name.substr(number + 3))))
        return true;
    }
  return false;
}

std::optional<WrongPattern> wrong_exclusion(const Job& job) {
  if (job.weight_decay_exclude.empty()) return {};
  ModelConfig model = job.model;
  model.set_layers(std::min<int64_t>(model.layers(), 3));
  const StateRegister weights = weights_of(model);
  for (const std::string& pattern : job.weight_decay_exclude)
    if (!names_a_weight(pattern, weights, job.model.layers()))
      return WrongPattern{
          kExclude,
          fmt::format("no weight has a name like \"{}\" (there are {}, {}, ...; \"*.bias\" "
                      "excludes all biases)",
                      printable(pattern), weights.front().name, weights.back().name)};
  return {};
}

std::optional<WrongPattern> wrong_partition(const Job& job) {
  const PipelineConfig& pipeline = job.pipeline;
  if (pipeline.stages == 1 || !pipeline.partition.starts_with(kByLayerName)) return {};
  std::vector<LayerSize> layers;
  for (const Unit& unit : forward_of(job.model).units) layers.push_back({.name = unit.name});
  try {
    partition_by(pipeline.partition, layers, pipeline.stages * chunks_of(pipeline));
  } catch (const UserError& error) {
    return WrongPattern{kPartition, error.what()};
  }
  return {};
}

}  // namespace

StateRegister weights_of(const ModelConfig& model) {
  StateRegister list;
  for (const Parameter& p : forward_of(model).parameters)
    list.push_back({.name = p.name, .slot = "master", .global_shape = p.shape});
  return list;
}

std::optional<WrongPattern> find_wrong_pattern(const Job& job) {
  std::optional<WrongPattern> wrong = wrong_exclusion(job);
  return wrong ? wrong : wrong_partition(job);
}

void check_name_patterns(const LoadedConfig& loaded) {
  const std::optional<WrongPattern> wrong = find_wrong_pattern(loaded.job);
  if (!wrong) return;
  const auto setting = std::ranges::find(loaded.settings, wrong->key, &Setting::key);
  fail_user("{}: {}: {}", setting->origin, wrong->key, wrong->message);
}

}  // namespace dstrain
