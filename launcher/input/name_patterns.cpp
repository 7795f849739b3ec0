#include "launcher/input/name_patterns.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/family/family.h"
#include "runtime/config/pipeline_schedule.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/pipeline/partition.h"
#include "runtime/storage/weight_layout.h"

namespace dstrain {
namespace {

constexpr const char* kExclude = "dstrain.weight_decay_exclude";
constexpr const char* kGroups = "dstrain.parameter_groups";
constexpr const char* kTargets = "dstrain.lora.targets";
constexpr const char* kSaved = "dstrain.lora.modules_to_save";
constexpr const char* kPartition = "pipeline.partition";

// Returns the model's forward pass, with any vocabulary where its size is unknown.
Program forward_of(const ModelConfig& model) {
  Program program;
  Builder builder(program, {.batch = model.family().any_batch()});
  build_model(builder, model.with_any_vocabulary());
  return program;
}

std::optional<WrongPattern> wrong_exclusion(const Job& job) {
  if (job.weight_decay_exclude.empty()) return {};
  StateRegister weights = weights_of(job.model);
  std::erase_if(weights, [](const StateEntry& entry) { return entry.slot == "buffer"; });
  for (const std::string& pattern : job.weight_decay_exclude)
    if (std::ranges::none_of(weights, [&pattern](const StateEntry& weight) {
          return matches(pattern, weight.name);
        }))
      return WrongPattern{
          kExclude,
          fmt::format("no weight has a name like \"{}\" (there are {}, {}, ...; \"*.bias\" "
                      "excludes all biases)",
                      printable(pattern), weights.front().name, weights.back().name)};
  return {};
}

std::optional<WrongPattern> wrong_group(const Job& job) {
  const FineTuning& tuning = job.model.fine_tuning();
  if (tuning.groups.empty()) return {};
  const Program program = forward_of(job.model);
  const std::vector<Parameter>& all = program.parameters;
  for (const ParameterGroup& group : tuning.groups)
    for (const std::string& pattern : group.match)
      if (std::ranges::none_of(all, [&](const Parameter& p) { return matches(pattern, p.name); }))
        return WrongPattern{
            kGroups, fmt::format("no parameter has a name like \"{}\" (there are {}, {}, ...)",
                                 printable(pattern), all.front().name, all.back().name)};
  if (std::ranges::all_of(all, &Parameter::frozen))
    return WrongPattern{kGroups,
                        fmt::format("the groups freeze every parameter of the {}, so there is "
                                    "nothing to train",
                                    job.model.family().title)};
  return {};
}

// The modules that an adapter may belong to, for a message: each once.
std::string possible_targets(const ModelConfig& model) {
  ModelConfig adapted = model;
  adapted.set_fine_tuning({.groups = {}, .lora = LoraConfig{.all_linear = true}});
  std::vector<std::string> names;
  for (const std::string& module : adapted_modules(weights_of(adapted)))
    if (const std::string end = module.substr(module.rfind('.') + 1);
        std::ranges::find(names, end) == names.end())
      names.push_back(end);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<WrongPattern> wrong_target(const Job& job) {
  const std::optional<LoraConfig>& lora = job.model.fine_tuning().lora;
  if (!lora) return {};
  const std::vector<std::string> modules = adapted_modules(weights_of(job.model));
  if (lora->all_linear && modules.empty())
    return WrongPattern{kTargets, fmt::format("the {} has no products in numbered layers",
                                              job.model.family().title)};
  for (const std::string& target : lora->targets) {
    LoraConfig one = *lora;
    one.targets = {target};
    if (std::ranges::none_of(modules, [&one](const std::string& m) { return one.takes(m, true); }))
      return WrongPattern{kTargets, fmt::format("no product has a name that ends in \"{}\" (there "
                                                "are {})",
                                                printable(target), possible_targets(job.model))};
  }
  return {};
}

// A head that is the table of tokens may be named beside the table, as PEFT's users do.
std::optional<WrongPattern> wrong_saved(const Job& job) {
  const std::optional<LoraConfig>& lora = job.model.fine_tuning().lora;
  if (!lora || lora->saved.empty()) return {};
  const std::vector<Parameter> all = forward_of(job.model).parameters;
  const bool tied = ties_head(job.model);
  for (const std::string& module : lora->saved) {
    LoraConfig one;
    one.saved = {module};
    if (std::ranges::any_of(all, [&one](const Parameter& p) { return one.saves(p.name); }))
      continue;
    const bool is_head = tied && one.saves(job.model.family().hugging_face->head);
    if (is_head && lora->saves(job.model.family().hugging_face->table)) continue;
    return WrongPattern{
        kSaved, is_head ? fmt::format("the head of this model is its token embedding ({}): name "
                                      "that module",
                                      job.model.family().hugging_face->table)
                        : fmt::format("no module has a name that ends in \"{}\" (there are "
                                      "parameters {}, {}, ...)",
                                      printable(module), all.front().name, all.back().name)};
  }
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

std::set<std::string, std::less<>> packed_weights_of(const ModelConfig& model) {
  std::set<std::string, std::less<>> names;
  for (const Parameter& p : forward_of(model).parameters)
    if (p.blocks != BlockFormat::none) names.insert(p.name);
  return names;
}

std::optional<WrongPattern> find_wrong_pattern(const Job& job) {
  for (const auto find : {wrong_target, wrong_saved, wrong_exclusion, wrong_group, wrong_partition})
    if (std::optional<WrongPattern> wrong = find(job)) return wrong;
  return {};
}

void check_name_patterns(const LoadedConfig& loaded) {
  const std::optional<WrongPattern> wrong = find_wrong_pattern(loaded.job);
  if (!wrong) return;
  const auto setting = std::ranges::find(loaded.settings, wrong->key, &Setting::key);
  fail_user("{}: {}: {}", setting->origin, wrong->key, wrong->message);
}

}  // namespace dstrain
