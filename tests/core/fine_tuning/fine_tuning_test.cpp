#include "runtime/core/fine_tuning/fine_tuning.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace dstrain;

TEST_CASE("the first group with a matching pattern has a parameter") {
  const FineTuning tuning{.groups = {{.match = {"*.bias", "ln.*"}, .lr_scale = 2},
                                     {.match = {"blocks.1.*"}, .trainable = false},
                                     {.match = {"*"}, .weight_decay = 0.5}}};
  CHECK(tuning.group_of("blocks.1.attn.bias") == &tuning.groups[0]);
  CHECK(tuning.group_of("ln.weight") == &tuning.groups[0]);
  CHECK(tuning.group_of("blocks.1.attn.weight") == &tuning.groups[1]);
  CHECK(tuning.group_of("blocks.2.attn.weight") == &tuning.groups[2]);
  CHECK(tuning.freezes("blocks.1.attn.weight"));
  CHECK_FALSE(tuning.freezes("blocks.1.attn.bias"));
  CHECK(tuning.may_freeze());
  CHECK(FineTuning{}.group_of("w") == nullptr);
  CHECK_FALSE(FineTuning{}.may_freeze());
}

TEST_CASE("with adapters all else is frozen, whatever its group says") {
  const FineTuning tuning{.groups = {{.match = {"*.lora_A.weight"}, .trainable = false},
                                     {.match = {"*"}, .lr_scale = 2}},
                          .lora = LoraConfig{}};
  CHECK(tuning.freezes("h.0.attn.c_attn.weight"));
  CHECK(tuning.freezes("h.0.attn.c_attn.lora_A.weight"));
  CHECK_FALSE(tuning.freezes("h.0.attn.c_attn.lora_B.weight"));
}

TEST_CASE("modules that are trained as a whole beside adapters have none, and are not frozen") {
  const FineTuning tuning{.groups = {},
                          .lora = LoraConfig{.all_linear = true, .saved = {"wte", "h.1.mlp"}}};
  for (const char* const trained : {"wte.weight", "transformer.wte.weight", "h.1.mlp.bias"}) {
    CAPTURE(trained);
    CHECK(tuning.with_adapters(trained));
    CHECK_FALSE(tuning.freezes(trained));
  }
  for (const char* const frozen : {"bwte.weight", "h.1.mlp.c_fc.weight", "h.11.mlp2.bias"}) {
    CAPTURE(frozen);
    CHECK(tuning.freezes(frozen));
  }
  CHECK_FALSE(tuning.lora->saves("wte.lora_A.weight"));
  CHECK_FALSE(tuning.lora->takes("h.1.mlp", true));
  CHECK(tuning.lora->takes("h.1.mlp.c_fc", true));
}

TEST_CASE("an adapter's target is the end of a module's name") {
  LoraConfig lora{.targets = {"q_proj", "mlp.down_proj", "lm_head"}};
  CHECK(lora.takes("model.layers.3.self_attn.q_proj", true));
  CHECK(lora.takes("model.layers.3.mlp.down_proj", true));
  CHECK(lora.takes("lm_head", false));
  CHECK_FALSE(lora.takes("model.layers.3.self_attn.xq_proj", true));
  CHECK_FALSE(lora.takes("model.layers.3.other.down_proj", true));
  lora.all_linear = true;
  CHECK(lora.takes("model.layers.3.self_attn.o_proj", true));
  CHECK_FALSE(lora.takes("lm_head", false));
}

TEST_CASE("an adapter counts alpha / r, or alpha / sqrt(r)") {
  CHECK(LoraConfig{.r = 4, .alpha = 6}.scale() == 1.5);
  CHECK(LoraConfig{.r = 3, .alpha = 6, .rslora = true}.scale() == 6 / std::sqrt(3.0));
}
