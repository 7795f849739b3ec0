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
#include "runtime/storage/weight_layout.h"

namespace dstrain {
namespace {

constexpr const char* kExclude = "dstrain.weight_decay_exclude";
constexpr const char* kPartition = "pipeline.partition";

// Returns the model's forward pass, with any vocabulary where its size is unknown.
Program forward_of(const ModelConfig& model) {
  Program program;
  Builder builder(program, {});
  build_model(builder, model.with_any_vocabulary());
  return program;
}

std::optional<WrongPattern> wrong_exclusion(const Job& job) {
  if (job.weight_decay_exclude.empty()) return {};
  StateRegister weights = weights_of(job.model);
  std::erase_if(weights, [](const StateEntry& entry) { return entry.slot == "buffer"; });
  for (const std::string& pattern : job.weight_decay_exclude)
    if (std::ranges::none_of(weights, [&pattern](const StateEntry& weight) {
          return ::fnmatch(pattern.c_str(), weight.name.c_str(), 0) == 0;
        }))
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
  const Program program = forward_of(model);
  for (const Parameter& p : program.parameters)
    list.push_back({.name = p.name, .slot = "master", .global_shape = p.shape});
  for (const RegisteredBuffer& b : program.registered)
    list.push_back({.name = b.name, .slot = "buffer", .global_shape = b.shape});
  return mapped(std::move(list), weight_map_of(model));
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
