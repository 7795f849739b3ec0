// Muon's keys: two learning rates, and the AdamW beside it.
#include <catch2/catch.hpp>

#include "models/registry.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/key_table.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
OptimizerConfig muon(const std::string& params) {
  return ask(trains_with(R"("optimizer": {"type": "muon", "params": {)" + params + "}}"))
      .job()
      .optimizer;
}
}  // namespace

TEST_CASE("training: Muon has betas and an eps of its own") {
  const Node root = read_config(R"({"optimizer": {"type": "Muon"}})", Source::file);
  const Facts facts = find_facts(root, model_registry());
  CHECK(find_key(facts, "optimizer.params.betas")->fallback == "[0.9, 0.95]");
  CHECK(find_key(facts, "optimizer.params.eps")->fallback == "1e-10");
  CHECK(find_key(facts, "optimizer.params.lr")->fallback == "0.02");
  CHECK(find_key(facts, "optimizer.params.adam_lr")->fallback == "0.0003");
  CHECK(find_key(facts, "optimizer.params.weight_decay")->fallback == "0");
  const OptimizerConfig none = muon("");
  CHECK(none.kind == OptimizerKind::muon);
  CHECK(none.lr == 0.02);
  CHECK(none.adam_lr == 3e-4);
  CHECK(none.beta1 == 0.9);
  CHECK(none.beta2 == 0.95);
  CHECK(none.eps == 1e-10);
  CHECK(none.momentum == 0.95);
  CHECK(none.gram);
  const OptimizerConfig one = muon(R"("lr": 0.5, "ns_method": "standard", "momentum": 0.5)");
  CHECK(one.lr == 0.5);
  CHECK(one.adam_lr == 0.5);
  CHECK(one.momentum == 0.5);
  CHECK_FALSE(one.gram);
  const OptimizerConfig own = muon(R"("lr": 0.5, "muon_lr": 0.25)");
  CHECK(own.lr == 0.25);
  CHECK(own.adam_lr == 0.5);
  CHECK(muon(R"("adam_lr": 0.125)").lr == 0.02);
  CHECK(muon(R"("adam_lr": 0.125)").adam_lr == 0.125);
  const Node adam = read_config(R"({"optimizer": {"type": "Adam"}})", Source::file);
  CHECK(find_key(find_facts(adam, model_registry()), "optimizer.params.betas")->fallback ==
        "[0.9, 0.999]");
}

TEST_CASE("training: a schedule overrules both rates of Muon, and leaves its betas") {
  const LoadedConfig loaded =
      ask(trains_with(
              R"("optimizer": {"type": "Muon", "params": {"muon_lr": 0.5, "adam_lr": 0.25}},
    "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.25}})"))
          .load();
  CHECK(verdict(loaded, "optimizer.params.muon_lr") ==
        "no_effect: the scheduler overrules it: scheduler.params.cycle_max_lr is 0.25");
  CHECK(verdict(loaded, "optimizer.params.adam_lr") == "honoured");
  CHECK_FALSE(loaded.job.schedule.cycle_momentum);
}

TEST_CASE(
    "training: a warm-up without a top takes each of Muon's rates to its own, as DeepSpeed's") {
  const auto load = [](const std::string& params) {
    return ask(trains_with(
                   R"("optimizer": {"type": "Muon", "params": {"muon_lr": 0.5, "adam_lr": 0.25}},
    "scheduler": {"type": "WarmupLR", "params": {)" +
                   params + "}}"))
        .load();
  };
  const LoadedConfig own = load("");
  CHECK(own.job.schedule.warmup_max_lr == 0.5);
  CHECK(own.job.schedule.warmup_max_adam_lr == 0.25);
  CHECK(verdict(own, "optimizer.params.adam_lr") == "honoured");
  const LoadedConfig one = load(R"("warmup_max_lr": 0.5)");
  CHECK_FALSE(one.job.schedule.warmup_max_adam_lr);
  CHECK(verdict(one, "optimizer.params.adam_lr") ==
        "no_effect: the scheduler overrules it: scheduler.params.warmup_max_lr is 0.5");
}

TEST_CASE("training: what DeepSpeed takes beside Muon's own keys is taken, or refused by name") {
  CHECK(muon("").decoupled_decay);
  CHECK_FALSE(muon(R"("adam_w_mode": false)").decoupled_decay);
  const LoadedConfig loaded =
      ask(trains_with(R"("optimizer": {"type": "Muon", "params": {"torch_adam": true,
          "fp32_optimizer_states": true, "per_head_muon": false}})"))
          .load();
  CHECK(loaded.job.optimizer.weight_decay == 0);
  CHECK(verdict(loaded, "optimizer.params.torch_adam") == "no_effect: there is one Adam here");
  CHECK(verdict(loaded, "optimizer.params.per_head_muon") == "no_effect: off");
  CHECK_THROWS_WITH(
      ask(trains_with(
              R"("optimizer": {"type": "Muon", "params": {"per_head_muon": true, "ns_steps": 3}})"))
          .load(),
      Catch::Contains("per_head_muon: matrices of attention are orthogonalised whole here") &&
          Catch::Contains("ns_steps: unknown key; DeepSpeed ignores it"));
}
