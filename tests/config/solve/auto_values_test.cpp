#include <catch2/catch.hpp>

#include "runtime/config/report/auto_line.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("auto: the optimizer's parameters are Hugging Face's defaults, of every type") {
  for (const char* type : {"AdamW", "Lion", "Lamb", "SGD", "Adagrad", "Muon", "OneBitAdam"}) {
    CAPTURE(type);
    const bool moments = type != std::string("SGD") && type != std::string("Adagrad");
    const bool eps = type != std::string("SGD") && type != std::string("Lion");
    const LoadedConfig loaded =
        ask(trains_with(R"("optimizer": {"type": ")" + std::string(type) +
                        R"(", "params": {"lr": "auto", "weight_decay": "auto")" +
                        (moments ? R"(, "betas": "auto")" : "") +
                        (eps ? R"(, "eps": "auto"}})" : "}}")))
            .load();
    const OptimizerConfig& o = loaded.job.optimizer;
    CHECK(o.lr == 5e-5);
    CHECK(o.weight_decay == 0);
    CHECK(setting(loaded, "optimizer.params.lr").value == "5e-05");
    CHECK(setting(loaded, "optimizer.params.lr").origin == "auto: Hugging Face's default");
    CHECK(setting(loaded, "optimizer.params.weight_decay").origin ==
          "auto: Hugging Face's default");
    if (moments) CHECK(std::pair(o.beta1, o.beta2) == std::pair(0.9, 0.999));
    if (eps) CHECK(o.eps == 1e-8);
    if (o.kind == OptimizerKind::muon) CHECK(o.adam_lr == 5e-5);
  }
  CHECK(ask(trains_with(R"("optimizer": {"type": "AdamW"})")).job().optimizer == OptimizerConfig{});
}

TEST_CASE("auto: the schedule follows the optimizer, Hugging Face and dstrain.steps") {
  const auto load = [](const std::string& optimizer) {
    return ask(trains_with(
                   optimizer +
                   R"("dstrain": {"steps": 321}, "scheduler": {"type": "WarmupDecayLR", "params": {
                        "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                        "total_num_steps": "auto"}})"))
        .load();
  };
  const LoadedConfig loaded = load(R"("optimizer": {"type": "Adam", "params": {"lr": 0.02}}, )");
  const ScheduleConfig& s = loaded.job.schedule;
  CHECK(s.warmup_min_lr == 0);
  CHECK(s.warmup_max_lr == 0.02);
  CHECK(s.warmup_num_steps == 1);
  CHECK(s.total_num_steps == 321);
  CHECK(setting(loaded, "scheduler.params.warmup_max_lr").origin == "auto: optimizer.params.lr");
  CHECK(setting(loaded, "scheduler.params.warmup_num_steps").origin ==
        "auto: Hugging Face's default");
  CHECK(setting(loaded, "scheduler.params.total_num_steps").origin == "auto: dstrain.steps");
  CHECK(loaded.warnings.empty());
  CHECK(load("").job.schedule.warmup_max_lr == 5e-5);
  CHECK(load(R"("optimizer": {"type": "Adam", "params": {"lr": "auto"}}, )")
            .job.schedule.warmup_max_lr == 5e-5);
}

TEST_CASE("auto: one line names the values that the numbers depend on") {
  const auto line = [](const std::string& members) {
    return auto_line(ask(trains_with(members)).load());
  };
  CHECK(line("").empty());
  CHECK(line(R"("zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                 "stage3_prefetch_bucket_size": "auto"}, "steps_per_print": "auto")")
            .empty());
  CHECK(
      line(
          R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                 "weight_decay": "auto"}}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto",
                "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
                "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto",
                  "warmup_num_steps": "auto", "total_num_steps": "auto"}}, "dstrain": {"steps": 9})") ==
      "\"auto\" became train_batch_size 2, gradient_accumulation_steps 1, "
      "gradient_clipping 1, bf16.enabled false, optimizer.params.lr 5e-05, "
      "optimizer.params.weight_decay 0, optimizer.params.betas [0.9, 0.999], "
      "optimizer.params.eps 1e-08, scheduler.params.warmup_num_steps 1, "
      "scheduler.params.warmup_max_lr 5e-05, scheduler.params.total_num_steps 9");
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
