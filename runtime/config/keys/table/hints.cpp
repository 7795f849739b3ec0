// Hints: what a key that does not exist may have meant. Names of other programs come first, then the same name in another
// section, then a name that is spelt much alike.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Names of Hugging Face's, PyTorch Lightning's, NeMo's and Megatron's settings, in lower case with underscores. Those of
// models are in their families' rows.
struct OtherName {
  std::string_view names;  // "a|b"
  std::string_view key;
};
constexpr OtherName kOtherNames[] = {
    {"seed|random_seed", "dstrain.seed"},
    {"batch_size|global_batch_size|train_step_batch_size", "train_batch_size"},
    {"micro_batch_size|micro_batch_per_gpu|micro_batch_size_per_gpu|train_micro_batch_size|"
     "per_device_train_batch_size|per_gpu_train_batch_size|batch_size_per_gpu",
     "train_micro_batch_size_per_gpu"},
    {"gradient_accumulation|grad_accumulation_steps|accumulate_grad_batches|gas",
     "gradient_accumulation_steps"},
    {"learning_rate|lr|base_lr|max_lr", "optimizer.params.lr"},
    {"weight_decay", "optimizer.params.weight_decay"},
    {"max_grad_norm|grad_clip|clip_grad|clip_grad_norm|gradient_clip|gradient_clip_val|"
     "max_gradient_norm",
     "gradient_clipping"},
    {"zero_stage|stage", "zero_optimization.stage"},
    {"save_steps|save_interval|checkpoint_interval|save_freq", "dstrain.save_interval"},
    {"eval_steps|eval_interval", "dstrain.eval_interval"},
    {"log_interval|logging_steps|print_interval|log_every_n_steps|print_steps", "steps_per_print"},
    {"num_epochs|epochs|num_train_epochs|max_epochs|max_steps|max_train_steps|train_steps|"
     "train_iters|num_steps|total_steps|num_train_steps",
     "dstrain.steps"},
    {"warmup_steps|num_warmup_steps", "scheduler.params.warmup_num_steps"},
    {"lr_scheduler|lr_schedule|learning_rate_scheduler", "scheduler"},
    {"gradient_checkpointing|checkpoint_activations|activation_checkpoint|recompute",
     "dstrain.recompute"},
    {"num_stages|pipe_parallel_size|pipeline_parallel_size|pipeline_model_parallel_size|pp_size",
     "pipeline.stages"},
    {"tensor_parallel_size|tensor_model_parallel_size|model_parallel_size|tp_size|tp_degree",
     "tensor_parallel.autotp_size"},
    {"context_parallel_size|ulysses_size|ulysses_sequence_parallel_size|cp_size|sp_size|sp_degree",
     "sequence_parallel_size"},
    {"gradient_accumulation_dtype|grad_accum_dtype", "data_types.grad_accum_dtype"},
    {"data_path|train_file|train_data", "dstrain.data.path"},
    {"timeout|ddp_timeout", "dstrain.timeout_s"},
};

// Names that no one key means.
struct Advice {
  std::string_view names, advice;
  std::string_view sections{};  // where they mean that; empty: anywhere
};
constexpr Advice kAdvice[] = {
    {"mixed_precision|precision|dtype|torch_dtype|half_precision|model_dtype",
     "say it with bf16.enabled or fp16.enabled"},
    {"fp8|float8|msamp|transformer_engine", "there is no fp8 here: use bf16.enabled"},
    {"flash_attention|use_flash_attention|use_flash_attn",
     "attention never stores its scores here"},
    {"loss_scale|initial_scale_power|loss_scale_window|hysteresis|consecutive_hysteresis|"
     "min_loss_scale",
     "bf16 needs no loss scale: remove it", "bf16|bfloat16"},
};

std::string_view parent_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

std::string_view leaf_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

// Returns whether a key without an effect is too deep to be meant by a name at another place.
bool minor(const KeySpec& spec) {
  return spec.state == State::no_effect && !parent_of(parent_of(spec.key)).empty();
}

// Returns `name` as the tables above write it.
std::string folded_name(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string text = lower_case(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

// Returns whether `key` would take the value: its type, and of a section one key at least.
bool would_take(const Facts& facts, std::string_view key, const Node& value) {
  const KeySpec* spec = find_key(facts, key);
  if (!spec || spec->state == State::refused || spec->state == State::not_yet ||
      spec->rule == &rules::kRefusedIfEnabled)
    return false;
  if (value.is(Node::Kind::null) || value.is_auto()) return true;
  if (spec->type == Type::section)
    return std::ranges::any_of(value.members, [&](const Member& m) {
      return find_key(facts, fmt::format("{}.{}", key, m.key)) != nullptr;
    });
  // Another name of a key that has a rule takes another form of value.
  const KeySpec& target = spec->rule ? *spec : target_of(facts, *spec);
  if (!type_error(target, value).empty()) return false;
  return !target.rule || !is_error(target.rule->judge(facts, target, value).state);
}

}  // namespace

std::string_view key_called(const ModelRegistry& models, std::string_view name) {
  const std::string folded = folded_name(name);
  for (const OtherName& other : kOtherNames)
    if (one_of(other.names, folded)) return other.key;
  for (const KeySpec& spec : models.keys())
    if (!spec.called.empty() && one_of(spec.called, folded)) return spec.key;
  return {};
}

std::string suggestion(const Facts& facts, std::string_view key, const Node& value) {
  const std::string_view parent = parent_of(key), leaf = leaf_of(key);
  const std::string folded = folded_name(leaf);
  for (const Advice& advice : kAdvice)
    if (one_of(advice.names, folded) &&
        (advice.sections.empty() || one_of(advice.sections, parent)))
      return fmt::format(" ({})", advice.advice);
  const auto mean = [](std::string_view candidate) {
    return candidate.empty() ? "" : fmt::format(" (did you mean {}?)", candidate);
  };
  // The value may have another form there: gradient_checkpointing is true, dstrain.recompute an interval.
  std::string_view called = key_called(*facts.models, leaf);
  if (called == key || !find_key(facts, called)) called = {};
  if (!called.empty() && parent.empty()) return mean(called);
  std::vector<std::string> siblings, elsewhere;
  for (const KeySpec& spec : facts.models->keys()) {
    const bool sibling = parent_of(spec.key) == parent;
    const bool same = !sibling && edit_distance(leaf_of(spec.key), leaf) == 0 &&
                      spec.key != parent && !minor(spec);
    if ((!sibling && !same) || find_key(facts, spec.key) != &spec) continue;
    if (sibling)
      siblings.emplace_back(leaf_of(spec.key));
    else
      elsewhere.emplace_back(spec.key);
  }
  // A name that exists in one other section is more likely misplaced than misspelt. A name that exists in several
  // (`enabled`) gives no hint.
  std::string likely;
  if (elsewhere.size() == 1)
    likely = elsewhere[0];
  else if (const std::string near = nearest(leaf, siblings); !near.empty())
    likely = parent.empty() ? near : fmt::format("{}.{}", parent, near);
  if (!likely.empty() && would_take(facts, likely, value)) return mean(likely);
  return mean(called);
}

}  // namespace dstrain
