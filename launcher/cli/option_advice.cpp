#include "launcher/cli/option_advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/keys/table/other_names.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Options of Hugging Face's programs on which nothing here depends.
constexpr std::string_view kNothing =
    "do_train|do_eval|do_predict|push_to_hub|hub_model_id|hub_token|tf32|trust_remote_code|"
    "dataloader_num_workers|dataloader_pin_memory|preprocessing_num_workers|"
    "remove_unused_columns|ddp_find_unused_parameters|logging_dir|run_name|cache_dir|"
    "use_fast_tokenizer|low_cpu_mem_usage|group_by_length|per_device_eval_batch_size|"
    "use_cache|disable_tqdm|log_level|logging_first_step|logging_strategy|local_files_only";

std::string folded(std::string_view name) {
  std::string text = lower_case(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

// Returns the key that the option is the path of, "--optimizer.params.lr"; empty: none.
std::string key_of_path(const std::string& name, const ModelRegistry& models) {
  for (const KeySpec& spec : models.keys())
    if (spec.key == name && spec.type != Type::section) return name;
  return "";
}

std::string setting(std::string_view key, const std::string& value) {
  return fmt::format("say it with --set {}={}", key, value.empty() ? "VALUE" : printable(value));
}

// Returns the advice on a flag of the precision: it is on without a value.
std::string on_flag(const std::string& name, const std::string& value) {
  const bool off = one_of("false|0|no", lower_case(value));
  return setting(name + ".enabled", off ? "false" : "true");
}

}  // namespace

std::string advice_on(const ForeignOption& option, const std::vector<std::string>& names,
                      const ModelRegistry& models) {
  const auto has = [&names](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  const size_t equals = option.word.find('=');
  const std::string dashed = option.word.substr(0, equals);
  const std::string name = dashed.substr(std::min(dashed.find_first_not_of('-'), dashed.size()));
  // Several words are a list, which --set takes as JSON.
  std::string value = option.values.size() == 1 ? option.values.front() : "";
  if (equals != std::string::npos) value = option.word.substr(equals + 1);
  if (folded(name) == "deepspeed")
    return value.empty() ? "leave it out, --config names DeepSpeed's file"
                         : fmt::format("did you mean --config {}?", printable(value));
  if (folded(name) == "local_rank") return "leave it out, dstrain numbers its ranks itself";
  if (one_of(kNothing, folded(name))) return "leave it out, nothing here depends on it";
  if (one_of("fp16|bf16", name)) return on_flag(name, value);
  const OtherName* const other = find_other_name(name);
  if (other && !other->option.empty() && has(other->option))
    return folded(name) == "gradient_checkpointing"
               ? fmt::format("did you mean {} 1?", other->option)
               : fmt::format("did you mean {}?", other->option);
  if (other && names_precision(name) && !precision_key(value).empty())
    return setting(precision_key(value), "true");
  if (other && !other->advice.empty()) return std::string(other->advice);
  std::string key = key_of_path(name, models);
  if (key.empty()) key = key_called(models, name);
  if (key.empty()) return "";
  const std::string own = "--" + key.substr(key.rfind('.') + 1);
  if (own != dashed && has(own)) return fmt::format("did you mean {}?", own);
  return setting(key, value);
}

}  // namespace dstrain
