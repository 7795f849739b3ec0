#include "runtime/engine/files/adapter_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/engine/files/unread_head.h"
#include "runtime/storage/weights.h"

namespace dstrain {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kLargestConfig = int64_t{16} << 20;
constexpr std::string_view kPeftPrefix = "base_model.model.", kHeadModule = "lm_head";

// Returns a member of the file, which must have the type of `usual`; `usual` where it is absent or null.
template <class T>
T value_of(const json& config, const char* key, T usual, const std::string& path) try {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? usual : found->get<T>();
} catch (const json::exception&) {
  fail_user("{}: {} has a value of another type than PEFT's", path, key);
}

// Returns what a weight of a module that is trained as a whole is in PEFT's files: what it is in those of the model.
std::vector<WeightPart> parts_of_whole(const StateEntry& weight) {
  std::vector<WeightPart> parts = weight.parts;
  if (parts.empty()) parts = {{.tensor = weight.name}};
  for (WeightPart& part : parts) part.tensor = fmt::format("{}{}", kPeftPrefix, part.tensor);
  return parts;
}

// Returns what an adapter's matrix is in PEFT's files. Where files have the rows of a weight in another order, they have those
// of its adapter's second matrix in that order.
std::vector<WeightPart> parts_in_files(const StateEntry& adapter, const StateRegister& weights) {
  if (!is_adapter(adapter.name)) return parts_of_whole(adapter);
  const std::string tensor = fmt::format("{}{}", kPeftPrefix, adapter.name);
  std::vector<WeightPart> whole{{.tensor = tensor}};
  if (!adapter.name.ends_with(kLoraB)) return whole;
  const std::string module = adapter.name.substr(0, adapter.name.size() - kLoraB.size()),
                    weight = fmt::format("{}.weight", module);
  const auto base = std::ranges::find(weights, weight, &StateEntry::name);
  if (base == weights.end() || base->parts.size() < 2) return whole;
  std::vector<WeightPart> parts = base->parts;
  for (WeightPart& part : parts) {
    if (part.tensor != weight) return whole;
    part.tensor = tensor;
  }
  return parts;
}

// Returns the modules that PEFT finds saved in the files. A head that is the table of tokens is one of its own there.
std::vector<std::string> saved_modules(const ModelConfig& model, const StateRegister& weights) {
  std::vector<std::string> modules = model.fine_tuning().lora->saved;
  std::erase_if(modules, [&](const std::string& module) {
    LoraConfig one;
    one.saved = {module};
    return std::ranges::none_of(weights, [&](const StateEntry& w) { return one.saves(w.name); });
  });
  if (!tied_table_of(model).empty()) modules.emplace_back(kHeadModule);
  return modules;
}

// Throws UserError if an adapter has other modules that are trained as a whole than the run.
void check_saved(const json& config, const ModelConfig& model, const std::string& path) {
  const LoraConfig& lora = model.fine_tuning().lora.value();
  using Names = std::vector<std::string>;
  const auto theirs = value_of<Names>(config, "modules_to_save", {}, path);
  // A head that is the table of tokens may be named beside the table.
  const auto has = [tied = ties_head(model)](const Names& names, const std::string& name) {
    return (tied && is_last_part(kHeadModule, name)) ||
           std::ranges::any_of(names, [&](const std::string& n) {
             return is_last_part(n, name) || is_last_part(name, n);
           });
  };
  const auto all_in = [&has](const Names& some, const Names& all) {
    return std::ranges::all_of(some, [&](const std::string& name) { return has(all, name); });
  };
  if (all_in(theirs, lora.saved) && all_in(lora.saved, theirs)) return;
  fail_user(
      "{}: the adapter has modules_to_save {}, and the configuration has {}: set "
      "dstrain.lora.modules_to_save to the adapter's",
      path, json(theirs).dump(), json(lora.saved).dump());
}

}  // namespace

std::string adapter_output(const Job& job) {
  return job.adapters.merge ? fmt::format("{}/{}", job.output, kAdapterFolder) : job.output;
}

std::string adapter_folder(const std::string& folder) {
  const std::string merged = fmt::format("{}/{}", folder, kAdapterFolder);
  const auto has_adapter = [](const std::string& place) {
    std::error_code none;
    return std::filesystem::exists(fmt::format("{}/{}", place, kAdapterConfig), none);
  };
  return !has_adapter(folder) && has_adapter(merged) ? merged : folder;
}

void remove_adapters(const std::string& output, const std::string& kept) {
  std::error_code none;
  const std::string merged = fmt::format("{}/{}", output, kAdapterFolder);
  for (const std::string& folder : {output, merged})
    for (const std::string_view name : {kAdapterConfig, kAdapterWeights})
      if (folder != kept) std::filesystem::remove(fmt::format("{}/{}", folder, name), none);
  // Files of others keep the folder.
  if (merged != kept && std::filesystem::is_directory(merged, none) &&
      std::filesystem::is_empty(merged, none))
    std::filesystem::remove(merged, none);
}

AdaptedWeights split_adapters(const StateRegister& weights, const FineTuning& tuning) {
  AdaptedWeights split;
  for (const StateEntry& entry : weights) {
    if (!is_adapter(entry.name)) split.base.push_back(entry);
    if (!tuning.with_adapters(entry.name)) continue;
    split.adapters.push_back(entry);
    split.adapters.back().parts = parts_in_files(entry, weights);
  }
  return split;
}

std::vector<std::string> adapted_modules(const StateRegister& weights) {
  std::vector<std::string> modules;
  for (const StateEntry& entry : weights)
    if (entry.name.ends_with(kLoraA))
      modules.push_back(entry.name.substr(0, entry.name.size() - kLoraA.size()));
  return modules;
}

std::string adapter_config_json(const Job& job, const StateRegister& weights) {
  const LoraConfig& lora = job.model.fine_tuning().lora.value();
  const std::vector<std::string> modules = adapted_modules(weights),
                                 saved = saved_modules(job.model, weights);
  // PEFT looks for modules whose names end so.
  std::set<std::string> targets(lora.targets.begin(), lora.targets.end());
  if (lora.all_linear)
    for (const std::string& module : modules) targets.insert(module.substr(module.rfind('.') + 1));
  // Where the weights of products are (inputs, outputs) in transformers, PEFT has to know.
  const bool transposed = std::ranges::any_of(weight_map_of(job.model), [](const WeightEntry& w) {
    return std::ranges::any_of(w.parts, &WeightPart::transposed);
  });
  ordered_json config{{"alpha_pattern", ordered_json::object()},
                      {"base_model_name_or_path", nullptr},
                      {"bias", "none"},
                      {"fan_in_fan_out", transposed},
                      {"inference_mode", true},
                      {"init_lora_weights", true},
                      {"layers_pattern", nullptr},
                      {"layers_to_transform", nullptr},
                      {"lora_alpha", lora.alpha},
                      {"lora_dropout", lora.dropout},
                      {"modules_to_save", saved.empty() ? ordered_json() : ordered_json(saved)},
                      {"peft_type", "LORA"},
                      {"r", lora.r},
                      {"rank_pattern", ordered_json::object()},
                      {"revision", nullptr},
                      {"target_modules", targets},
                      {"task_type", job.model.gives_score() ? "SEQ_CLS" : "CAUSAL_LM"},
                      {"use_dora", false},
                      {"use_rslora", lora.rslora}};
  if (std::round(lora.alpha) == lora.alpha) config["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  if (!tied_table_of(job.model).empty()) config["ensure_weight_tying"] = true;
  if (!job.model_directory.empty())
    config["base_model_name_or_path"] =
        std::filesystem::absolute(job.model_directory).lexically_normal().string();
  return config.dump(2) + "\n";
}

std::string_view tied_table_of(const ModelConfig& model) {
  const std::optional<LoraConfig>& lora = model.fine_tuning().lora;
  if (!lora || !ties_head(model) || model.gives_score()) return {};
  const std::string_view table = model.family().hugging_face->table;
  return lora->saves(table) ? table : std::string_view();
}

StateRegister with_shared_head(StateRegister adapters, const ModelConfig& model) {
  const auto table = std::ranges::find(adapters, tied_table_of(model), &StateEntry::name);
  if (table == adapters.end()) return adapters;
  StateEntry head = *table;
  head.name = kHeadTensor;
  head.parts = {{.tensor = fmt::format("{}{}", kPeftPrefix, kHeadTensor)}};
  adapters.push_back(std::move(head));
  return adapters;
}

ForeignNames adapter_names_of(const ModelConfig& model) {
  if (tied_table_of(model).empty()) return {};
  return {.ignored = {fmt::format("{}{}", kPeftPrefix, kHeadTensor)}};
}

void check_adapter_weights(const std::string& file, const Job& job, const StateRegister& adapters) {
  check_weights(file, with_shared_head(adapters, job.model));
  if (!tied_table_of(job.model).empty() &&
      has_other_head(file, job.model, {}, std::string(kPeftPrefix)))
    fail_user(
        "{}: the adapter has a head that differs from its embedding, and the model's head is its "
        "embedding: train the adapter with ensure_weight_tying, or untie the model",
        file);
}

void check_adapter(const std::string& folder, const ModelConfig& model) {
  const LoraConfig& lora = model.fine_tuning().lora.value();
  const std::string path = fmt::format("{}/{}", adapter_folder(folder), kAdapterConfig);
  const std::string text =
      read_input_file(path, "the configuration of the adapter", kLargestConfig);
  const json config = json::parse(text, nullptr, false);
  if (!config.is_object()) fail_user("{}: expected a JSON object", path);
  if (const std::string type = value_of<std::string>(config, "peft_type", "LORA", path);
      type != "LORA")
    fail_user("{}: peft_type {}: expected an adapter of type LORA", path, type);
  if (value_of(config, "use_dora", false, path))
    fail_user("{}: use_dora: the adapter is a DoRA, which is not supported", path);
  if (const std::string bias = value_of<std::string>(config, "bias", "none", path); bias != "none")
    fail_user("{}: bias {}: adapters with biases are not supported", path, bias);
  // Those of PiSSA, OLoRA and their like belong to a base from which the first adapter was taken away.
  if (const auto kind = config.find("init_lora_weights");
      kind != config.end() && !kind->is_boolean() && !kind->is_null() && *kind != "gaussian" &&
      *kind != "orthogonal")
    fail_user(
        "{}: init_lora_weights {}: the adapter belongs to another base than the model's weights; "
        "expected one of true, false, \"gaussian\" and \"orthogonal\": in PEFT "
        "save_pretrained(..., path_initial_model_for_weight_conversion=...) makes a plain adapter "
        "of it",
        path, kind->dump());
  if (const auto tokens = config.find("alora_invocation_tokens");
      tokens != config.end() && !tokens->is_null())
    fail_user("{}: alora_invocation_tokens: activated adapters are not supported", path);
  for (const char* const key : {"rank_pattern", "alpha_pattern"})
    if (const auto found = config.find(key);
        found != config.end() && !found->is_null() && !found->empty())
      fail_user("{}: {}: not supported in an adapter to begin with", path, key);
  check_saved(config, model, path);
  LoraConfig theirs = lora;
  theirs.r = value_of<int64_t>(config, "r", 8, path);
  theirs.alpha = value_of<double>(config, "lora_alpha", 8, path);
  theirs.rslora = value_of(config, "use_rslora", false, path);
  if (theirs.r != lora.r)
    fail_user("{}: the adapter has rank {}: set dstrain.lora.r to {}", path, theirs.r, theirs.r);
  if (theirs.scale() != lora.scale())
    fail_user(
        "{}: the adapter has lora_alpha {}, use_rslora {}, and counts {:.6g}; the configuration's "
        "would count {:.6g}: set dstrain.lora.alpha to {} and dstrain.lora.rslora to {}",
        path, theirs.alpha, theirs.rslora, theirs.scale(), lora.scale(), theirs.alpha,
        theirs.rslora);
}

}  // namespace dstrain
