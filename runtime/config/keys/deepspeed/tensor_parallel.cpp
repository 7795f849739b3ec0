// Section tensor_parallel.
#include <fmt/core.h>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr std::string_view kSize = "tensor_parallel.autotp_size";

// Returns whether ranks share layers.
bool is_on(const Facts& facts) {
  return facts.integer(kSize) > 1;
}

Judgement off() {
  return {State::no_effect, "tensor parallelism is off"};
}

// DeepSpeed has tensor parallelism by autotp_size alone, and an error if tp_size contradicts it.
constexpr Rule kTpSize{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const int64_t size = to_integer(value).value_or(1), whole = facts.integer(kSize);
      if (size == 1 || size == whole)
        return {State::no_effect, fmt::format("{} is the number of ranks", kSize)};
      if (!facts.legal(kSize)) return {State::error, fmt::format("see {}", kSize), true};
      if (whole == 0)
        return {State::no_effect,
                fmt::format("tensor parallelism is off, as in DeepSpeed: {0} {1} turns it on",
                            kSize, size),
                false, true};
      return {State::error, fmt::format("{} does not match {} {}: use {}", size, kSize, whole,
                                        whole > 1 ? fmt::format("{}, or 1", whole) : "1")};
    },
    "1 or autotp_size: no_effect; autotp_size 0: no_effect with a warning; else error"};

constexpr Rule kOverlap{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                          if (!is_on(facts)) return off();
                          return {};
                        },
                        "sizes up to 1: no_effect; else honoured"};

// Keys whose note says why they change nothing.
constexpr Rule kNoEffect{[](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
                           if (!is_on(facts)) return off();
                           return {State::no_effect, std::string(spec.note)};
                         },
                         "no_effect"};

// Keys that are refused with the reason that their note says, unless they are empty.
constexpr Rule kRefused{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if (!is_on(facts)) return off();
      if (value.is(Node::Kind::object) && value.members.empty())
        return {State::no_effect, "it is empty"};
      return {State::refused, std::string(spec.note)};
    },
    "sizes up to 1, or empty: no_effect; else refused"};

constexpr Rule kHead{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (!is_on(facts)) return off();
      if (to_boolean(value).value_or(true)) return {};
      return {State::no_effect, "heads are always divided by vocabulary: the numbers are the same"};
    },
    "sizes up to 1, or false: no_effect; true: honoured"};

constexpr Rule kLoss{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (!is_on(facts)) return off();
      if (value.text == "torch") return {};
      return {State::no_effect, "it names the kernels of a loss whose numbers are the same"};
    },
    "sizes up to 1, or liger: no_effect; torch: honoured"};

}  // namespace

std::vector<KeySpec> tensor_parallel() {
  constexpr std::string_view follows = "how layers are divided follows from the model";
  constexpr std::string_view object =
      "an object of a Python program, which there is not: remove the key";
  return {
      {.key = "tensor_parallel", .type = Type::section},
      {.key = kSize,
       .type = Type::integer,
       .fallback = "0",
       .note = "ranks that share each layer",
       .rule = &rules::kAboveOne,
       .min = 0,
       .max = kMostRanksOfAxis},
      {.key = "tensor_parallel.tp_overlap_comm",
       .fallback = "false",
       .note = "products whose results the ranks that share layers add are made in two halves, the "
               "first of which travels beside the other one; and what these ranks send travels "
               "beside computation also where overlap_comm is false",
       .rule = &kOverlap},
      {.key = "tensor_parallel.vocab_parallel_lm_head",
       .note = "heads are divided by vocabulary",
       .rule = &kHead,
       .nullable = true},
      {.key = "tensor_parallel.vocab_parallel_ce_backend",
       .type = Type::choice,
       .fallback = "\"torch\"",
       .note = "the loss of a head that is divided by vocabulary",
       .rule = &kLoss,
       .choices = "torch|liger"},
      {.key = "tensor_parallel.dtype",
       .type = Type::string,
       .note = "the run's type is that of bf16 and fp16",
       .rule = &kNoEffect},
      {.key = "tensor_parallel.tp", .type = Type::section},
      {.key = "tensor_parallel.tp.tp_size",
       .type = Type::integer,
       .fallback = "1",
       .rule = &kTpSize,
       .min = 1},
      {.key = "tensor_parallel.tp.tp_grain_size",
       .type = Type::integer,
       .fallback = "1",
       .note = "parts need no granularity: the last ones are filled up (DeepSpeed's training does "
               "not read it either)",
       .rule = &kNoEffect,
       .min = 1},
      {.key = "tensor_parallel.tp.mpu",
       .type = Type::opaque,
       .note = object,
       .rule = &kRefused,
       .nullable = true},
      {.key = "tensor_parallel.tp.tp_group",
       .type = Type::opaque,
       .note = object,
       .rule = &kRefused,
       .nullable = true},
      {.key = "tensor_parallel.tensor_parallel",
       .type = Type::section,
       .alias = "tensor_parallel.tp"},
      {.key = "tensor_parallel.tensor_parallel.tp_size", .alias = "tensor_parallel.tp.tp_size"},
      {.key = "tensor_parallel.tensor_parallel.tp_grain_size",
       .alias = "tensor_parallel.tp.tp_grain_size"},
      {.key = "tensor_parallel.tensor_parallel.mpu", .alias = "tensor_parallel.tp.mpu"},
      {.key = "tensor_parallel.tensor_parallel.tp_group", .alias = "tensor_parallel.tp.tp_group"},
      {.key = "tensor_parallel.kernel_inject",
       .fallback = "false",
       .note = "it replaces modules of PyTorch, of which there are none",
       .rule = &kNoEffect},
      {.key = "tensor_parallel.replace_with_kernel_inject",
       .alias = "tensor_parallel.kernel_inject"},
      {.key = "tensor_parallel.injection_policy_tuple",
       .type = Type::strings,
       .note = follows,
       .rule = &kNoEffect},
      {.key = "tensor_parallel.preset_model",
       .type = Type::string,
       .note = follows,
       .rule = &kNoEffect},
      {.key = "tensor_parallel.partition_config",
       .type = Type::opaque,
       .note = "how layers are divided follows from the model: remove it, as patterns that say the "
               "same are not needed",
       .rule = &kRefused,
       .nullable = true},
      {.key = "tensor_parallel.keep_module_on_host",
       .fallback = "false",
       .note = "it says where PyTorch's modules are while they are divided, and there are none",
       .rule = &kNoEffect},
  };
}

}  // namespace dstrain::keys
