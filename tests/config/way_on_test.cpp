#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "runtime/config/report/check_report.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string way_on(const LoadedConfig& loaded, const std::string& key) {
  for (const Verdict& v : loaded.verdicts)
    if (v.key == key) return v.way_on;
  return "none";
}

// Returns the configuration with the options of its own last line. They must have no quotes.
Ask followed(Ask a) {
  std::istringstream words(a.check().way_on);
  for (std::string word; words >> word;) {
    if (word == "--ignore" && words >> word) a.request.ignored.push_back(word);
    if (word == "--set" && words >> word) a.request.sets.push_back(word);
  }
  return a;
}

}  // namespace

TEST_CASE("way on: every verdict that stops a run ends with its own, and the last line holds all") {
  const Ask a =
      ask(R"({"train_batch_size": 8, "timeout": 5, "fp16": {"enabled": true, "opt_level": "O2",
    "min_loss_scale": 0.5}, "optimizer": {"type": "Adam", "params": {"betas3": 1}},
    "sparse_attention": {"mode": "fixed"}, "use_data_before_expert_parallelism": true})");
  const LoadedConfig loaded = a.check();
  CHECK(way_on(loaded, "timeout") == "DeepSpeed ignores it; `--ignore timeout` goes on without it");
  CHECK(way_on(loaded, "fp16.opt_level") ==
        "DeepSpeed refuses it too; `--ignore fp16.opt_level` goes on without it");
  CHECK(way_on(loaded, "fp16.min_loss_scale") ==
        "`--ignore fp16.min_loss_scale` goes on without it");
  CHECK(way_on(loaded, "optimizer.params.betas3") ==
        "DeepSpeed refuses it too; `--ignore optimizer.params.betas3` goes on without it");
  CHECK(way_on(loaded, "sparse_attention") == "`--ignore sparse_attention` goes on without it");
  CHECK(way_on(loaded, "sparse_attention.mode").empty());
  CHECK(way_on(loaded, "train_batch_size").empty());
  const std::string all =
      "it trains with --ignore timeout --ignore fp16.opt_level --ignore fp16.min_loss_scale "
      "--ignore optimizer.params.betas3 --ignore sparse_attention --ignore "
      "use_data_before_expert_parallelism";
  CHECK(loaded.way_on == all);
  CHECK_THAT(check_text(loaded.verdicts, CheckLines::notable, loaded.way_on),
             Catch::EndsWith(". This file does not train as it is; " + all + "\n"));
  CHECK_THAT(check_json(loaded.verdicts), Catch::Contains("`--ignore timeout` goes on"));
  CHECK_THROWS_WITH(a.load(), Catch::EndsWith("\n  " + all));
  CHECK_FALSE(has_errors(followed(a).check().verdicts));
}

TEST_CASE("way on: what the last line says trains, though one answer leads to the next") {
  const std::string text = GENERATE(
      R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": -1}})",
      R"("scheduler": {"type": "WarmupDecayLR"})", R"("scheduler": {"type": "OneCycle"})",
      R"("scheduler": {"params": {"warmup_num_steps": 5}})",
      R"("scheduler": {"type": "StepLR", "params": {"step_size": 5}})",
      R"("scheduler": {"type": "WarmUpLR", "params": {"warmup_num_steps": 5}})",
      R"("optimizer": {"params": {"lr": 1}})", R"("optimizer": "auto")",
      R"("optimizer": {"type": "None", "params": {"lr": 1}})",
      R"("optimizer": {"type": "RMSprop", "params": {"lr": 1, "alpha": 0.5}})",
      R"("optimizer": {"type": "AdamW", "params": {"max_grad_norm": 2}})",
      R"("optimizer": {"type": "ZeroOneAdam"}, "zero_optimization": {"stage": 2})",
      R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}})",
      R"("zero_optimization": {"stage": 9, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}})",
      R"("train_batch_size": 9)", R"("steps_per_print": 5, "steps_per_print": 6)",
      R"("fp16": {"enabled": true}, "bf16": {"enabled": true})",
      R"("data_types": {"grad_accum_dtype": "fp16"}, "checkpoint": {"tag_validation": "val"})",
      R"("pipeline": {"stages": 3}, "elasticity": {"enabled": true})",
      R"("pipeline": {"stages": 2}, "sequence_parallel_size": 3, "tensor_parallel": {"autotp_size": 5})",
      R"("sequence_parallel_size": 2, "dstrain": {"sequence_parallel": "ring"})",
      R"("tensor_parallel": {"autotp_size": 2}, "optimizer": {"type": "OneBitAdam"})",
      R"("steps_per_print": 5, "steps_per_print": 6, "steps_per_print": 7)",
      R"("no_such_key": 5, "no_such_key": 6)");
  INFO(text);
  const Ask a = ask(trains_with(text), {}, 8);
  REQUIRE(has_errors(a.check().verdicts));
  INFO(a.check().way_on);
  CHECK_FALSE(has_errors(followed(a).check().verdicts));
}

TEST_CASE("way on: settings keep what was meant") {
  const auto all = [](const std::string& members) {
    return ask(trains_with(members)).check().way_on;
  };
  CHECK(all(R"("optimizer": {"type": "AdamW", "params": {"max_grad_norm": 2}})") ==
        "it trains with --ignore optimizer.params.max_grad_norm --set gradient_clipping=2");
  CHECK(all(R"("steps_per_print": 5, "steps_per_print": 6)") ==
        "it trains with --set steps_per_print=6");
  CHECK(all(R"("scheduler": {"type": "WarmUpLR"})") ==
        "it trains with --set scheduler.type=WarmupLR");
  CHECK(all(R"("data_types": {"grad_accum_dtype": "bf16"})") ==
        "it trains with --ignore data_types.grad_accum_dtype");
  CHECK(all(R"("a key": 1)") == "it trains with --ignore 'a key'");
  CHECK(all(R"("wall_clock_breakdown": "True")") ==
        "it trains with --set wall_clock_breakdown=true");
  CHECK(all(R"("optimizer": {"type": "AdamW", "params": {"lr": "3e-5"}})") ==
        "it trains with --set optimizer.params.lr=3e-5");
  CHECK(all(R"("optimizer": {"type": "AdamW", "params": {"betas": ["0.9", "0.999"]}})") ==
        "it trains with --set 'optimizer.params.betas=[0.9, 0.999]'");
  CHECK(all(R"("optimizer": {"type": "SGD", "params": {"maximize": "true"}})") ==
        "it trains with --ignore optimizer.params.maximize");
}

TEST_CASE("way on: the keys of a schedule") {
  const auto all = [](const std::string& type, const std::string& params) {
    return ask(trains_with(R"("scheduler": {"type": ")" + type + R"(", "params": {)" + params +
                           "}}"))
        .check()
        .way_on;
  };
  const std::string total = "scheduler.params.total_num_steps";
  CHECK(all("WarmupLR", R"("total_num_steps": 5)") == "it trains with --ignore " + total);
  CHECK(all("WarmupDecayLR", "") == "it trains with --set " + total + "=auto");
  CHECK(all("WarmupDecayLR", R"("total_num_steps": -1)") ==
        "it trains with --set " + total + "=auto");
  CHECK(all("WarmupDecayLR", R"("total_num_steps": "500")") ==
        "it trains with --set " + total + "=500");
  CHECK(all("WarmupLR", R"("warmup_num_steps": 0)") ==
        "it trains with --set scheduler.params.warmup_num_steps=1");
  CHECK(all("WarmupLR", R"("warmup_type": "Linear")") ==
        "it trains with --set scheduler.params.warmup_type=linear");
}

TEST_CASE("way on: of a key that is given twice the last value is kept") {
  Ask a = ask(trains_with(R"("bf16": {"enabled": false}, "bf16": {"enabled": true})"));
  CHECK(a.check().way_on == "it trains with --set 'bf16={\"enabled\": true}'");
  a.request.sets = {R"(bf16={"enabled": true})"};
  CHECK(a.job().dtype == DType::bf16);
  CHECK(ask(trains_with(R"("steps_per_print": 5, "steps_per_print": 6, "steps_per_print": 7)"))
            .check()
            .way_on == "it trains with --set steps_per_print=7");
  // What is wrong in the earlier section goes with it; what is wrong in the last one has its own answer.
  CHECK(ask(trains_with(R"("fp16": {"x": 1}, "fp16": {"enabled": true, "y": 1})")).check().way_on ==
        R"(it trains with --set 'fp16={"enabled": true, "y": 1}' --ignore fp16.y)");
  a = ask(trains_with(R"("fp16": {"loss_scale": 3}, "fp16": {"loss_scale": 1, "loss_scale": 2})"));
  CHECK(a.check().way_on ==
        R"(it trains with --set 'fp16={"loss_scale": 2}' --set fp16.loss_scale=2)");
  a.request.sets = {R"(fp16={"loss_scale": 2})", "fp16.loss_scale=2"};
  CHECK_FALSE(has_errors(a.check().verdicts));
  CHECK(ask(trains_with(R"("dstrain": {"steps": 5}, "dstrain": {"steps": 6})")).check().way_on ==
        "");
}

TEST_CASE("way on: a key with a dot in its own name is not ignored where another has its path") {
  const LoadedConfig both =
      ask(trains_with(R"("zero_optimization.stage": 3, "zero_optimization": {"stage": 1})"))
          .check();
  CHECK(way_on(both, "zero_optimization.stage").empty());
  CHECK(both.way_on.empty());
  CHECK(way_on(ask(trains_with(R"("zero_optimization.stage": 3)")).check(),
               "zero_optimization.stage") ==
        "DeepSpeed ignores it; `--ignore zero_optimization.stage` goes on without it");
  CHECK(way_on(ask(trains_with(R"("zero_optimization": {"a.b": 3})")).check(),
               "zero_optimization.a.b") ==
        "DeepSpeed refuses it too; `--ignore zero_optimization.a.b` goes on without it");
}

TEST_CASE(
    "way on: batch sizes that contradict each other keep the batch where ranks can share it") {
  const auto sizes = [](int64_t train, int64_t micro, int64_t accumulation, int64_t ranks) {
    std::string text = fmt::format(R"({{"train_batch_size": {})", train);
    if (micro) text += fmt::format(R"(, "train_micro_batch_size_per_gpu": {})", micro);
    if (accumulation) text += fmt::format(R"(, "gradient_accumulation_steps": {})", accumulation);
    return ask(text + "}", {}, ranks);
  };
  const std::string micro = "--set train_micro_batch_size_per_gpu=";
  const std::string accumulation = "--set gradient_accumulation_steps=";
  const LoadedConfig loaded = sizes(8, 3, 2, 2).check();
  CHECK(way_on(loaded, "train_batch_size") == "`" + micro + "2` goes on with the same batch");
  CHECK(loaded.way_on == "it trains with " + micro + "2");
  CHECK(sizes(24, 3, 2, 8).check().way_on == "it trains with " + accumulation + "1");
  CHECK(sizes(33, 17, 2, 0).check().way_on ==
        "it trains with " + micro + "11 " + accumulation + "1");
  CHECK(way_on(sizes(33, 17, 2, 2).check(), "train_batch_size") ==
        "`--set train_batch_size=68` goes on");
  for (const int64_t train : {1, 12, 33, 64})
    for (const int64_t each : {0, 1, 5, 64})
      for (const int64_t steps : {0, 1, 3, 64})
        for (const int64_t ranks : {1, 2, 5, 64}) {
          INFO(train << " " << each << " " << steps << " " << ranks);
          const Ask a = sizes(train, each, steps, ranks);
          if (!has_errors(a.check().verdicts)) continue;
          const LoadedConfig on = followed(a).check();
          CHECK_FALSE(has_errors(on.verdicts));
          CHECK((on.job.batch.train_batch == train) == (train % ranks == 0));
        }
}

TEST_CASE("way on: what no option answers is named") {
  Ask a = ask(trains_with(R"("timeout": 5)"), {"steps_per_print=-1"});
  CHECK(a.check().way_on == "what is left to mend with --ignore timeout: steps_per_print");
  CHECK(a.check().verdicts[0].way_on ==
        "DeepSpeed ignores it; `--ignore timeout` goes on without it");
  a = ask(trains_with(R"("timeout": 5)"));
  a.request.need_data = true;
  CHECK_THROWS_WITH(
      a.load(),
      Catch::EndsWith("\n  what is left to mend with --ignore timeout: dstrain.data.path"));
  CHECK(ask("{").check().way_on.empty());
}

TEST_CASE("way on: a section is no second error") {
  const LoadedConfig loaded =
      ask(trains_with(
              R"("fp16": {"opt_level": 1}, "eigenvalue": {"enabled": true, "max_iter": 5})"))
          .check();
  CHECK(verdict(loaded, "fp16") == "honoured: see fp16.opt_level");
  CHECK(verdict(loaded, "eigenvalue") == "honoured: see eigenvalue.enabled");
}
