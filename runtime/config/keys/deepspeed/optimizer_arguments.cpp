// Section optimizer.params: arguments of the constructors of DeepSpeed's and PyTorch's optimizers that are no constants of
// the update rule.
#include <fmt/core.h>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain::keys {
namespace {

constexpr std::string_view kOfAdam = "adam|adamw";
constexpr std::string_view kOfTorch = "adam|adamw|sgd|adagrad";

// Returns whether the decay of Adam or AdamW is decoupled.
bool decays_decoupled(const Facts& facts) {
  return facts.optimizer == "adamw" || facts.on("optimizer.params.adam_w_mode");
}

constexpr Rule kOnlyFalse{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                            if (!to_boolean(value).value_or(false))
                              return {State::no_effect, "off"};
                            return {State::refused, std::string(spec.note)};
                          },
                          "false: no_effect; true: refused"};

constexpr Rule kAmsgrad{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const Judgement usual = kOnlyFalse.judge(facts, spec, value);
      const bool adam = one_of(kOfAdam, facts.optimizer);
      if (usual.state == State::refused && adam && facts.on("optimizer.params.torch_adam"))
        return {State::refused, "is not part of dstrain: use false"};
      return usual;
    },
    "false: no_effect; true: refused"};

constexpr Rule kOnlyZero{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                           if (to_real(value).value_or(0) == 0) return {State::no_effect, "off"};
                           return {State::refused, std::string(spec.note)};
                         },
                         "0: no_effect; else refused"};

// torch.optim.AdamW's default of the weight decay is not 0; in other respects its Adam is DeepSpeed's.
constexpr Rule kTorchAdam{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
      if (facts.optimizer != "muon" && decays_decoupled(facts) &&
          !find(*facts.root, "optimizer.params.weight_decay"))
        return {State::honoured, "weight_decay is the default of torch.optim.AdamW, 0.01"};
      return {State::no_effect, "there is one Adam here"};
    },
    "no_effect; true without weight_decay and with decoupled decay: honoured"};

constexpr Rule kDecoupled{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (facts.optimizer == "adamw" && !to_boolean(value).value_or(true))
        return {State::no_effect, "type AdamW decays decoupled all the same: use Adam"};
      return {};
    },
    "honoured; no_effect with type AdamW"};

// Other names of adam_w_mode, which DeepSpeed's own call overrules or does not take.
constexpr Rule kSameMode{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const bool decoupled = decays_decoupled(facts);
      if (to_boolean(value).value_or(decoupled) == decoupled)
        return {State::no_effect, "it is what type and adam_w_mode say"};
      return {State::refused,
              decoupled
                  ? "type and adam_w_mode decide, and the decay is decoupled: for L2 use type Adam "
                    "with adam_w_mode false"
                  : "adam_w_mode decides, and is false: use adam_w_mode true"};
    },
    "as type and adam_w_mode say: no_effect; else refused"};

constexpr Rule kMoments{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (to_boolean(value).value_or(true))
        return {State::no_effect, "moments are fp32 unless bf16.bf16_optimizer_states is on"};
      return {State::no_effect,
              "moments have the dtype of the masters or fp32, as "
              "bf16.bf16_optimizer_states says",
              false, true};
    },
    "no_effect; false: with a warning, as bf16_optimizer_states decides"};

}  // namespace

std::vector<KeySpec> optimizer_arguments() {
  constexpr std::string_view launches =
      "it says how PyTorch launches an update, which is one pass here";
  const auto ignored = [](std::string_view name, std::string_view only, std::string_view note) {
    return KeySpec{.key = name, .state = State::no_effect, .note = note, .only = only};
  };
  return {
      {.key = "optimizer.params.adam_w_mode",
       .fallback = "true",
       .note =
           "decoupled weight decay (AdamW) instead of L2; with Muon that of the parameters that "
           "Adam updates",
       .rule = &kDecoupled,
       .only = "adam|adamw|muon"},
      {.key = "optimizer.params.adamw_mode", .rule = &kSameMode, .only = kOfAdam},
      {.key = "optimizer.params.decoupled_weight_decay", .rule = &kSameMode, .only = kOfAdam},
      {.key = "optimizer.params.torch_adam",
       .fallback = "false",
       .rule = &kTorchAdam,
       .only = "adam|adamw|muon"},
      {.key = "optimizer.params.fp32_optimizer_states",
       .fallback = "true",
       .rule = &kMoments,
       .only = "adam|adamw|adagrad|lion|muon"},
      ignored("optimizer.params.fused", kOfTorch, launches),
      ignored("optimizer.params.foreach", kOfTorch, launches),
      ignored("optimizer.params.capturable", kOfAdam, launches),
      ignored("optimizer.params.set_grad_none", "adam|adamw|lion",
              "the first micro-batch of a step replaces the gradient"),
      {.key = "optimizer.params.differentiable",
       .fallback = "false",
       .note = "no gradient goes through an update here: use false",
       .rule = &kOnlyFalse,
       .only = kOfTorch},
      {.key = "optimizer.params.maximize",
       .fallback = "false",
       .note = "a run here minimises its loss: use false",
       .rule = &kOnlyFalse,
       .only = kOfTorch},
      {.key = "optimizer.params.amsgrad",
       .fallback = "false",
       .note = "DeepSpeed's Adam refuses it too: use false",
       .rule = &kAmsgrad,
       .only = "adagrad|adam|adamw|lamb|onebitadam|onebitlamb|zerooneadam"},
      {.key = "optimizer.params.per_head_muon",
       .fallback = "false",
       .note = "matrices of attention are orthogonalised whole here: use false",
       .rule = &kOnlyFalse,
       .only = "muon"},
      {.key = "optimizer.params.lr_decay",
       .type = Type::real,
       .fallback = "0",
       .note = "update n has the learning rate lr / (1 + (n - 1) * lr_decay)",
       .min = 0,
       .only = "adagrad"},
      {.key = "optimizer.params.initial_accumulator_value",
       .type = Type::real,
       .fallback = "0",
       .note = "the sums of squares begin at 0 here: use 0",
       .rule = &kOnlyZero,
       .min = 0,
       .only = "adagrad"},
  };
}

}  // namespace dstrain::keys
