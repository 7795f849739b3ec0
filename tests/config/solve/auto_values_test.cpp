#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("auto: the optimizer's parameters are DeepSpeed's defaults") {
  const LoadedConfig loaded =
      ask(trains_with(
              R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                                   "weight_decay": "auto"}})"))
          .load();
  CHECK(loaded.job.optimizer == OptimizerConfig{});
  CHECK(setting(loaded, "optimizer.params.lr").value == "0.001");
  CHECK(setting(loaded, "optimizer.params.lr").origin == "auto: the default");
  CHECK(setting(loaded, "optimizer.params.betas").origin == "auto: the default");
}

TEST_CASE("auto: the schedule follows the optimizer and dstrain.steps") {
  const LoadedConfig loaded =
      ask(trains_with(
              R"("optimizer": {"type": "Adam", "params": {"lr": 0.02}}, "dstrain": {"steps": 321},
                         "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
                           "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}})"))
          .load();
  const ScheduleConfig& s = loaded.job.schedule;
  CHECK(s.warmup_min_lr == 0);
  CHECK(s.warmup_max_lr == 0.02);
  CHECK(s.warmup_num_steps == 1000);
  CHECK(s.total_num_steps == 321);
  CHECK(setting(loaded, "scheduler.params.warmup_max_lr").origin == "auto: optimizer.params.lr");
  CHECK(setting(loaded, "scheduler.params.total_num_steps").origin == "auto: dstrain.steps");
  CHECK(loaded.warnings ==
        std::vector<std::string>{"c.json:3:81: scheduler.params.total_num_steps: 321 is "
                                 "less than warmup_num_steps 1000"});
}

TEST_CASE("auto: the bucket follows the width of the model") {
  const std::string text =
      trains_with(R"("zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"})");
  CHECK(ask(text).job().reduce_bucket_elements == 768 * 768);
  CHECK(ask(text, {"dstrain.model.n_embd=96"}).job().reduce_bucket_elements == 96 * 96);
  CHECK(verdict(ask(text).check(), "zero_optimization.reduce_bucket_size") ==
        "honoured: 589824 (auto: hidden size squared)");
}

TEST_CASE("auto: precision, clipping and printing are the defaults") {
  const Job job = ask(trains_with(R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
                                     "gradient_clipping": "auto", "steps_per_print": "auto")"))
                      .job();
  CHECK(job.dtype == DType::f32);
  CHECK(job.gradient_clipping == 1.0);
  CHECK(job.steps_per_print == 10);
  CHECK(ask(trains_with(R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": true})")).job().dtype ==
        DType::bf16);
}

TEST_CASE("auto: is a value of its own where the key has it") {
  CHECK(ask(trains_with(R"("dstrain": {"data": {"format": "auto"}})")).job().data.format ==
        DataFormat::automatic);
}

TEST_CASE("auto: no section can be auto") {
  CHECK(ask(trains_with(R"("optimizer": "auto")")).error() ==
        "c.json:1:2: optimizer: expected a section { }, found \"auto\"");
}
