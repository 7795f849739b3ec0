// Section dstrain.lora: the names of PEFT's LoraConfig, so that its values can be copied.
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain::keys {
namespace {

// Returns whether PEFT does nothing with the value: false, 0, "none", an empty list or section.
bool is_off(const Node& value) {
  if (value.is(Node::Kind::string)) return one_of("none|", lower_case(value.text));
  if (value.is(Node::Kind::object) || value.is(Node::Kind::array))
    return value.members.empty() && value.items.empty();
  return to_real(value).value_or(1) == 0 || !to_boolean(value).value_or(true);
}

constexpr Rule kOff{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                      if (is_off(value)) return {State::no_effect, "off"};
                      return {State::refused, std::string(spec.note)};
                    },
                    "off (false, \"none\", empty): no_effect; else refused"};

// PEFT's true begins as a run here does: A by Kaiming's rule, B as zeros.
constexpr Rule kInit{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                       if (to_boolean(value).value_or(false))
                         return {State::no_effect, "fresh adapters begin so"};
                       return {State::refused, std::string(spec.note)};
                     },
                     "true: no_effect; else refused"};

constexpr Rule kTask{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                       if (one_of("causal_lm|lora|seq_cls", lower_case(value.text)))
                         return {State::no_effect, "it is what a run with adapters here is"};
                       return {State::refused, std::string(spec.note)};
                     },
                     "CAUSAL_LM, SEQ_CLS, LORA: no_effect; else refused"};

}  // namespace

std::vector<KeySpec> peft() {
  constexpr std::string_view writes = "a run writes it into adapter_config.json itself";
  const auto off = [](std::string_view key, std::string_view note) {
    return KeySpec{.key = key, .type = Type::any, .note = note, .rule = &kOff};
  };
  const auto fixed = [](std::string_view key, std::string_view note) {
    return KeySpec{.key = key, .type = Type::any, .state = State::no_effect, .note = note};
  };
  return {
      {.key = "dstrain.lora.lora_alpha", .type = Type::real, .alias = "dstrain.lora.alpha"},
      {.key = "dstrain.lora.lora_dropout", .type = Type::real, .alias = "dstrain.lora.dropout"},
      {.key = "dstrain.lora.target_modules",
       .type = Type::string_or_strings,
       .alias = "dstrain.lora.targets"},
      {.key = "dstrain.lora.use_rslora", .alias = "dstrain.lora.rslora"},
      off("dstrain.lora.use_dora", "DoRA is not part of dstrain: use false"),
      off("dstrain.lora.bias", "biases are not trained beside adapters: use \"none\""),
      off("dstrain.lora.lora_bias", "adapters have no biases: use false"),
      off("dstrain.lora.rank_pattern", "all adapters have the rank dstrain.lora.r: remove it"),
      off("dstrain.lora.alpha_pattern",
          "all adapters have the scale of dstrain.lora.alpha: remove it"),
      off("dstrain.lora.layers_to_transform",
          "modules of all layers get adapters: name their paths in dstrain.lora.targets"),
      off("dstrain.lora.layers_pattern",
          "modules of all layers get adapters: name their paths in dstrain.lora.targets"),
      off("dstrain.lora.exclude_modules",
          "name the modules that get adapters in dstrain.lora.targets"),
      off("dstrain.lora.target_parameters",
          "name the modules that get adapters in dstrain.lora.targets"),
      off("dstrain.lora.trainable_token_indices", "adapters alone are trained: remove it"),
      off("dstrain.lora.layer_replication", "layers are not repeated here: remove it"),
      off("dstrain.lora.fan_in_fan_out", "linear weights are (out, in): use false"),
      off("dstrain.lora.use_qalora", "QALoRA is not part of dstrain: use false"),
      off("dstrain.lora.loftq_config", "LoftQ is not part of dstrain: remove it"),
      {.key = "dstrain.lora.init_lora_weights",
       .type = Type::any,
       .note =
           "fresh adapters begin as PEFT's do with true: use true, or dstrain.lora.init for the "
           "adapters of a folder",
       .rule = &kInit},
      {.key = "dstrain.lora.task_type",
       .type = Type::string,
       .note = "models here are causal language models: use \"CAUSAL_LM\"",
       .rule = &kTask},
      {.key = "dstrain.lora.peft_type",
       .type = Type::string,
       .note = "adapters here are LoRA's: use \"LORA\"",
       .rule = &kTask},
      fixed("dstrain.lora.inference_mode", "a run trains its adapters"),
      fixed("dstrain.lora.base_model_name_or_path", "--model names the model"),
      fixed("dstrain.lora.revision", "--model names a folder, which has one revision"),
      fixed("dstrain.lora.auto_mapping", writes),
      fixed("dstrain.lora.runtime_config", "it says how PEFT keeps adapters in memory"),
      fixed("dstrain.lora.megatron_config", "layers are divided as tensor_parallel says"),
      fixed("dstrain.lora.megatron_core", "layers are divided as tensor_parallel says"),
      fixed("dstrain.lora.qalora_group_size", "QALoRA alone reads it"),
  };
}

}  // namespace dstrain::keys
