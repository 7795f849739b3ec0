// Keys of fine-tuning: groups of parameters, and low-rank adapters.
#include <fmt/core.h>

#include "runtime/config/keys/dstrain/parameter_groups.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kGroups{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                         const std::string problem = parameter_groups_problem(value);
                         return problem.empty() ? Judgement{} : Judgement{State::error, problem};
                       },
                       "honoured"};

constexpr Rule kBase{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const std::string_view run = facts.fp16 ? "f16" : facts.bf16 ? "bf16" : "f32";
      if (value.text == run || value.text == "int8" || value.text == "nf4") return {};
      return {
          State::refused,
          fmt::format("the base has the run's dtype, {}: remove the key, or set bf16.enabled or "
                      "fp16.enabled",
                      run)};
    },
    "the run's dtype, int8, nf4: honoured; else refused"};

constexpr Rule kMerge{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const std::string base = facts.text("dstrain.lora.base");
      if (value.boolean && (base == "int8" || base == "nf4"))
        return {State::refused,
                fmt::format("the weights of the blocks are rounded to {}: merge the adapter into "
                            "the model's own weights, by a run of no step with dstrain.lora.init",
                            base)};
      return {};
    },
    "honoured; refused with base int8 or nf4"};

}  // namespace

std::vector<KeySpec> fine_tuning() {
  return {
      {.key = "dstrain.parameter_groups",
       .type = Type::any,
       .note =
           "a list of {\"match\": [patterns of parameters' names], \"lr_scale\": 1.0, "
           "\"weight_decay\": 0, \"trainable\": true}: what these parameters have otherwise; the "
           "first group that matches has a parameter",
       .rule = &kGroups},
      {.key = "dstrain.lora", .type = Type::section},
      {.key = "dstrain.lora.r",
       .type = Type::integer,
       .fallback = "8",
       .note = "rank of the adapters",
       .min = 1,
       .max = 65536},
      {.key = "dstrain.lora.alpha",
       .type = Type::real,
       .fallback = "8",
       .note = "an adapter counts alpha / r, with rslora alpha / sqrt(r)",
       .min = 0,
       .open = true},
      {.key = "dstrain.lora.dropout",
       .type = Type::real,
       .fallback = "0",
       .note = "dropout on what adapters read",
       .min = 0,
       .max = 1,
       .open = true},
      {.key = "dstrain.lora.targets",
       .type = Type::string_or_strings,
       .fallback = "\"all-linear\"",
       .note = "ends of the names of the modules that get adapters, as a list: [\"q_proj\", "
               "\"v_proj\"]; \"all-linear\": the products of all blocks"},
      {.key = "dstrain.lora.modules_to_save",
       .type = Type::string_or_strings,
       .note =
           "ends of the names of the modules that are trained as a whole beside the adapters, and "
           "written with them, as a list: [\"embed_tokens\", \"lm_head\"]; unset: none"},
      {.key = "dstrain.lora.rslora", .fallback = "false", .note = "alpha / sqrt(r)"},
      {.key = "dstrain.lora.base",
       .type = Type::choice,
       .note = "what the frozen weights of the blocks' products are kept in: int8 and nf4 in "
               "blocks of 64 with a scale in fp32; unset: the run's dtype",
       .rule = &kBase,
       .choices = "bf16|f16|f32|int8|nf4"},
      {.key = "dstrain.lora.init",
       .type = Type::string,
       .note = "a folder with an adapter to begin with, of PEFT's files; unset: fresh adapters"},
      {.key = "dstrain.lora.merge",
       .fallback = "false",
       .note = "the run's end also writes the model with its adapters added to the weights",
       .rule = &kMerge},
  };
}

}  // namespace dstrain::keys
