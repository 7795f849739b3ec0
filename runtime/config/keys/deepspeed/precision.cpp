// Sections fp16 and bf16 (old name: bfloat16), and the casting modes that dstrain does not have.
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr std::string_view kFp16Off = "fp16 is off", kBf16Off = "bf16 is off";

constexpr Rule kFp16{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                       if (!facts.fp16) return {State::no_effect, std::string(kFp16Off)};
                       return {};
                     },
                     "honoured; fp16 off: no_effect"};

constexpr Rule kDynamic{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                          if (!facts.fp16) return {State::no_effect, std::string(kFp16Off)};
                          if (!facts.dynamic_scale)
                            return {State::no_effect, "the loss scale is static"};
                          return {};
                        },
                        "honoured; fp16 off or loss_scale above 0: no_effect"};

constexpr Rule kWindow{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const Judgement usual = kDynamic.judge(facts, spec, value);
      if (usual.state == State::honoured && to_integer(value).value_or(1) <= 0)
        return {State::error, "expected an integer above 0: the loss scale is dynamic"};
      return usual;
    },
    "honoured; 0: error; fp16 off or loss_scale above 0: no_effect"};

// Returns what becomes of 16-bit masters or moments in a run that has them on.
Judgement of_adam(const Facts& facts) {
  if (facts.optimizer == "adam" || facts.optimizer == "adamw") return {};
  return {State::error, "16-bit masters need Adam or AdamW"};
}

constexpr Rule kFp16Masters{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (!facts.fp16) return {State::no_effect, std::string(kFp16Off)};
      if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
      return of_adam(facts);
    },
    "true with Adam: honoured; with another optimizer: error; else no_effect"};

constexpr Rule kBf16{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                       if (!facts.bf16) return {State::no_effect, std::string(kBf16Off)};
                       return {};
                     },
                     "honoured; bf16 off: no_effect"};

constexpr Rule kBf16Masters{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (!facts.bf16) return {State::no_effect, std::string(kBf16Off)};
      if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
      return of_adam(facts);
    },
    "true with Adam: honoured; with another optimizer: error; else no_effect"};

constexpr Rule kBf16States{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const Judgement judgement = kBf16Masters.judge(facts, spec, value);
      if (judgement.state == State::honoured && !facts.on("bf16.bf16_master_weights_and_grads"))
        return {State::error, "needs bf16_master_weights_and_grads"};
      return judgement;
    },
    "true with bf16_master_weights_and_grads: honoured; without: error; else no_effect"};

constexpr std::string_view kMasters =
    "the 16-bit parameters are the masters; gradients are held in 16 bits unless grad_accum_dtype "
    "says fp32";

}  // namespace

std::vector<KeySpec> precision() {
  return {
      {.key = "fp16", .type = Type::section},
      {.key = "fp16.enabled",
       .fallback = "false",
       .automatic = "false",
       .note = "parameters and activations in fp16, with loss scaling"},
      {.key = "fp16.auto_cast",
       .fallback = "false",
       .state = State::no_effect,
       .note = "inputs are cast where they enter the model"},
      {.key = "fp16.loss_scale",
       .type = Type::real,
       .fallback = "0",
       .note = "0: dynamic",
       .rule = &kFp16,
       .min = 0,
       .max = 0x1p127},
      {.key = "fp16.initial_scale_power",
       .type = Type::integer,
       .fallback = "16",
       .note = "the first dynamic scale is 2 to this power",
       .rule = &kDynamic,
       .min = 0,
       .max = 126},
      {.key = "fp16.loss_scale_window",
       .type = Type::integer,
       .fallback = "1000",
       .note = "steps without overflow before the scale doubles",
       .rule = &kWindow,
       .min = 0,
       .max = kMaxCount},
      {.key = "fp16.hysteresis",
       .type = Type::integer,
       .fallback = "2",
       .note = "overflows before the scale halves",
       .rule = &kDynamic,
       .min = 1,
       .max = 2147483647},
      {.key = "fp16.consecutive_hysteresis", .fallback = "false", .rule = &kDynamic},
      {.key = "fp16.min_loss_scale",
       .type = Type::integer,
       .fallback = "1",
       .note = "an overflow at this scale ends the run; 0: at the smallest fp32 number",
       .rule = &kDynamic,
       .min = 0,
       .max = kMaxCount},
      {.key = "fp16.fp16_master_weights_and_grads",
       .fallback = "false",
       .note = kMasters,
       .rule = &kFp16Masters},

      {.key = "bf16", .type = Type::section, .nullable = true},
      {.key = "bf16.enabled",
       .fallback = "false",
       .automatic = "false",
       .note = "parameters and activations in bf16"},
      {.key = "bf16.immediate_grad_update",
       .fallback = "false",
       .state = State::no_effect,
       .note = "gradients go straight into their fp32 sums"},
      {.key = "bf16.check_grad_overflow",
       .fallback = "true",
       .note = "a step with a non-finite gradient is skipped",
       .rule = &kBf16},
      {.key = "bf16.bf16_master_weights_and_grads",
       .fallback = "false",
       .note = kMasters,
       .rule = &kBf16Masters},
      {.key = "bf16.bf16_optimizer_states",
       .fallback = "false",
       .note = "Adam's moments in bf16",
       .rule = &kBf16States},
      {.key = "bfloat16", .type = Type::section, .alias = "bf16"},
      {.key = "bfloat16.enabled", .alias = "bf16.enabled"},
      {.key = "bfloat16.immediate_grad_update", .alias = "bf16.immediate_grad_update"},
      {.key = "bfloat16.check_grad_overflow", .alias = "bf16.check_grad_overflow"},
      {.key = "bfloat16.bf16_master_weights_and_grads",
       .alias = "bf16.bf16_master_weights_and_grads"},
      {.key = "bfloat16.bf16_optimizer_states", .alias = "bf16.bf16_optimizer_states"},

      {.key = "amp",
       .type = Type::section,
       .note = "(NVIDIA apex) was removed from DeepSpeed (0.19.8); here use bf16 or fp16",
       .rule = &rules::kRefusedIfEnabled},
      {.key = "amp.enabled", .fallback = "false", .rule = &rules::kRefusedIfEnabled},
      {.key = "amp.opt_level",
       .type = Type::string,
       .fallback = "\"O1\"",
       .rule = &rules::kRefusedIfEnabled},
      {.key = "torch_autocast",
       .type = Type::section,
       .note = "is not part of dstrain: use bf16 or fp16",
       .rule = &rules::kRefusedIfEnabled},
      {.key = "torch_autocast.enabled", .fallback = "false", .rule = &rules::kRefusedIfEnabled},
      {.key = "torch_autocast.dtype", .type = Type::string, .rule = &rules::kRefusedIfEnabled},
      {.key = "torch_autocast.lower_precision_safe_modules",
       .type = Type::strings,
       .rule = &rules::kRefusedIfEnabled},
  };
}

}  // namespace dstrain::keys
