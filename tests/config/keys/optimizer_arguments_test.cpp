#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

// The case of one parameter of an optimizer of this type.
VerdictCase of(const std::string& type, const std::string& name, const std::string& value,
               const std::string& verdict) {
  return {R"("optimizer": {"type": ")" + type + R"(", "params": {")" + name + "\": " + value + "}}",
          "optimizer.params." + name, verdict};
}

OptimizerConfig with(const std::string& type, const std::string& params) {
  return ask(trains_with(R"("optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}"))
      .job()
      .optimizer;
}

}  // namespace

TEST_CASE("optimizer: arguments that say how an update is launched have no effect") {
  const std::string launches =
      "no_effect: it says how PyTorch launches an update, which is one pass here";
  for (const std::string type : {"Adam", "AdamW", "SGD", "Adagrad"})
    check_all({of(type, "fused", "true", launches), of(type, "foreach", "false", launches),
               of(type, "fused", "null", "no_effect: unset")});
  check_all({
      of("AdamW", "capturable", "true", launches),
      of("SGD", "capturable", "true", "error: belongs to adam, adamw, not to sgd"),
      of("Lamb", "fused", "true", "error: belongs to adam, adamw, sgd, adagrad, not to lamb"),
      of("Lion", "set_grad_none", "true",
         "no_effect: the first micro-batch of a step replaces the gradient"),
      of("Adagrad", "fp32_optimizer_states", "true",
         "no_effect: moments are fp32 unless bf16.bf16_optimizer_states is on"),
  });
}

TEST_CASE("optimizer: arguments that change the numbers are honoured or refused by name") {
  for (const std::string type : {"Adam", "AdamW", "SGD", "Adagrad"})
    check_all({
        of(type, "maximize", "false", "no_effect: off"),
        of(type, "maximize", "true", "refused: a run here minimises its loss: use false"),
        of(type, "differentiable", "false", "no_effect: off"),
        of(type, "differentiable", "true",
           "refused: no gradient goes through an update here: use false"),
    });
  check_all({
      of("Adagrad", "amsgrad", "true", "refused: DeepSpeed's Adam refuses it too: use false"),
      of("Adagrad", "initial_accumulator_value", "0", "no_effect: off"),
      of("Adagrad", "initial_accumulator_value", "0.1",
         "refused: the sums of squares begin at 0 here: use 0"),
      of("Adagrad", "lr_decay", "0.5", "honoured"),
      of("Adam", "lr_decay", "0.5", "error: belongs to adagrad, not to adam"),
  });
  check_all({{R"("optimizer": {"type": "Adam", "params": {"torch_adam": true, "amsgrad": true}})",
              "optimizer.params.amsgrad", "refused: is not part of dstrain: use false"}});
  CHECK(with("Adagrad", R"("lr_decay": 0.25)").lr_decay == 0.25);
}

TEST_CASE("optimizer: other names of adam_w_mode must say what type and adam_w_mode do") {
  const std::string same = "no_effect: it is what type and adam_w_mode say";
  const std::string decoupled =
      "refused: type and adam_w_mode decide, and the decay is decoupled: for L2 use type Adam with "
      "adam_w_mode false";
  for (const std::string name : {"adamw_mode", "decoupled_weight_decay"}) {
    check_all({of("AdamW", name, "true", same), of("AdamW", name, "false", decoupled),
               of("Adam", name, "true", same), of("Adam", name, "false", decoupled)});
    const std::string l2 = R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false, ")";
    check_all({{l2 + name + "\": false}}", "optimizer.params." + name, same},
               {l2 + name + "\": true}}", "optimizer.params." + name,
                "refused: adam_w_mode decides, and is false: use adam_w_mode true"}});
  }
}

TEST_CASE("optimizer: torch_adam without weight_decay has the default of torch.optim.AdamW") {
  CHECK(with("AdamW", R"("torch_adam": true)").weight_decay == 0.01);
  CHECK(with("Adam", R"("torch_adam": true)").weight_decay == 0.01);
  CHECK(with("Adam", R"("torch_adam": true, "adam_w_mode": false)").weight_decay == 0);
  CHECK(with("AdamW", R"("torch_adam": true, "weight_decay": 0)").weight_decay == 0);
  CHECK(with("AdamW", R"("torch_adam": true, "weight_decay": "auto")").weight_decay == 0);
  CHECK(with("AdamW", R"("torch_adam": false)").weight_decay == 0);
  check_all({of("AdamW", "torch_adam", "true",
                "honoured: weight_decay is the default of torch.optim.AdamW, 0.01"),
             of("AdamW", "torch_adam", "false", "no_effect: off")});
}
