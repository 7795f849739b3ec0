#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/keys/table/numbers.h"
#include "runtime/config/report/check_report.h"
#include "runtime/config/text.h"
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
    if (word == "--ignore" && words >> word) {
      std::istringstream keys(word);
      for (std::string key; std::getline(keys, key, ',');) a.request.ignored.push_back(key);
    }
    if (word == "--set" && words >> word) a.request.sets.push_back(word);
  }
  return a;
}

}  // namespace

TEST_CASE("way on: every verdict that stops a run ends with its own, and the last line holds all") {
  const Ask a = ask(R"({"train_batch_size": 8, "host_list": 5, "fp16": {"enabled": true,
    "opt_level": "O2"}, "steps_per_print": -1, "nebula": {"enabled": true},
    "use_data_before_expert_parallelism": true})");
  const LoadedConfig loaded = a.check();
  CHECK(way_on(loaded, "host_list") ==
        "DeepSpeed ignores it; `--ignore host_list` goes on without it");
  CHECK(way_on(loaded, "fp16.opt_level") ==
        "DeepSpeed refuses it too; `--ignore fp16.opt_level` goes on without it");
  CHECK(way_on(loaded, "steps_per_print") == "`--ignore steps_per_print` goes on without it");
  CHECK(way_on(loaded, "nebula") == "`--ignore nebula` goes on without it");
  CHECK(way_on(loaded, "nebula.enabled").empty());
  CHECK(way_on(loaded, "train_batch_size").empty());
  const std::string all =
      "it trains with --ignore host_list,fp16.opt_level,steps_per_print,nebula,"
      "use_data_before_expert_parallelism";
  CHECK(loaded.way_on == all);
  CHECK_THAT(check_text(loaded.verdicts, CheckLines::notable, loaded.way_on),
             Catch::EndsWith(". This file does not train as it is; " + all + "\n"));
  CHECK_THAT(check_json(loaded.verdicts), Catch::Contains("`--ignore host_list` goes on"));
  CHECK_THROWS_WITH(a.load(), Catch::EndsWith("\n  " + all));
  CHECK_FALSE(has_errors(followed(a).check().verdicts));
}

TEST_CASE("way on: the first line leaves out all keys that mean nothing, by one command") {
  Ask a = ask(trains_with(R"("gradient_checkpointing": true, "logging": {"level": "debug"},
    "fsdp": "full_shard", "optimizer": {"type": "AdamW", "weight_decay": 0.1},
    "zero_optimization": {"stage": 1, "allreduce_bucket_size": 5e8})"));
  a.request.command = "dstrain plan --config c.json";
  const std::string line =
      "4 keys mean nothing to DeepSpeed, and nothing here; without them: dstrain plan --config "
      "c.json --ignore "
      "gradient_checkpointing,logging,fsdp,zero_optimization.allreduce_bucket_size";
  CHECK(a.check().without_effect == line);
  CHECK_THROWS_WITH(a.load(), Catch::StartsWith(line + "\n"));
  // One key has its own line alone.
  CHECK(ask(trains_with(R"("logging": 1)")).check().without_effect.empty());
}

TEST_CASE("way on: what the last line says trains, though one answer leads to the next") {
  const std::string text = GENERATE(
      R"("scheduler": {"type": "WarmupDecayLR"})",
      R"("scheduler": {"type": "WarmUpLR", "params": {"warmup_num_steps": 5}})",
      R"("optimizer": {"type": "AdamW", "params": {"max_grad_norm": 2}})",
      R"("optimizer": {"type": "AdamW", "params": {"weight_dcay": 2}})",
      R"("optimizer": {"type": "ZeroOneAdam"}, "zero_optimization": {"stage": 2})",
      R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}})",
      R"("zero_optimization": {"stage": 9, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}})",
      R"("train_micro_batch_size_per_gpu": 3)", R"("steps_per_print": 5, "steps_per_print": 6)",
      R"("checkpoint": {"tag_validation": "val"})", R"("lr": 0.1)", R"("pipeline": {"stages": 3})",
      R"("pipeline": {"stages": 2}, "sequence_parallel_size": 3, "tensor_parallel": {"autotp_size": 5})",
      R"("steps_per_print": 5, "steps_per_print": 6, "steps_per_print": 7)",
      R"("no_such_key": 5, "no_such_key": 6)");
  INFO(text);
  const Ask a = ask(trains_with(text), {}, 8);
  REQUIRE(has_errors(a.check().verdicts));
  INFO(a.check().way_on);
  CHECK_FALSE(has_errors(followed(a).check().verdicts));
}

TEST_CASE("way on: no key that numbers depend on is left out") {
  const std::string text = GENERATE(
      R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": -1}})",
      R"("scheduler": {"type": "OneCycle"})", R"("scheduler": {"params": {"warmup_num_steps": 5}})",
      R"("scheduler": {"type": "StepLR", "params": {"step_size": 5}})",
      R"("scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 5}})",
      R"("scheduler": {"type": "WarmupLR", "params": {"power": 5}})",
      R"("optimizer": {"params": {"lr": 1}, "type": "Adamax"})", R"("optimizer": "auto")",
      R"("optimizer": {"type": "None", "params": {"lr": 1}})",
      R"("optimizer": {"type": "RMSprop", "params": {"lr": 1, "alpha": 0.5}})",
      R"("optimizer": {"type": "AdanW", "params": {"lr": 1}})",
      R"("optimizer": {"type": "Adam", "params": {"betas3": 1}})",
      R"("optimizer": {"type": "Adam", "params": {"lr": -1}})",
      R"("optimizer": {"type": "Adam", "params": {"amsgrad": true}})",
      R"("optimizer": {"type": "Adam", "params": {"max_grad_norm": 2}}, "gradient_clipping": 1)",
      R"("train_batch_size": 9)", R"("fp16": {"enabled": true}, "bf16": {"enabled": true})",
      R"("fp16": {"enabled": true, "min_loss_scale": 0.5})", R"("amp": {"enabled": true})",
      R"("data_types": {"grad_accum_dtype": "fp16"})", R"("sparse_attention": {"mode": "fixed"})",
      R"("compression_training": {"weight_quantization": {}})",
      R"("elasticity": {"enabled": true})", R"("curriculum_learning": {"enabled": true})",
      R"("progressive_layer_drop": {"enabled": true})",
      R"("zero_optimization": {"zenflow": {"topk_ratio": 0.1}})",
      R"("lr": 0.1, "learning_rate": 0.2)", R"("lr_scheduler_type": "cosine")",
      R"("tensor_parallel": {"autotp_size": 2}, "optimizer": {"type": "OneBitAdam"})",
      R"("num_train_epochs": 3)", R"("warmup_ratio": 0.1)",
      R"("dstrain": {"model": {"type": "gpt_oss"}})", R"("dstrain": {"steps": -1})",
      R"("dstrain": {"lora": {"use_dora": true}})", R"("dstrain": {"lora": {"foo": 1}})");
  INFO(text);
  const LoadedConfig loaded = ask(trains_with(text), {}, 2).check();
  REQUIRE(has_errors(loaded.verdicts));
  INFO(loaded.way_on);
  CHECK_FALSE(loaded.way_on.starts_with("it trains"));
}

TEST_CASE("way on: a wrong value of any key that numbers depend on is never left out") {
  for (const KeySpec& spec : model_registry().keys()) {
    const bool model = spec.key.starts_with("dstrain.model");
    if (changes_no_number(spec.key) || model || spec.type == Type::section) continue;
    std::string text = R"({"none": [1]})";
    for (std::string_view rest = spec.key; !rest.empty();) {
      const size_t dot = rest.rfind('.');
      const std::string name(rest.substr(dot == rest.npos ? 0 : dot + 1));
      std::string type;
      if (name == "params" && !spec.only.empty())
        type = fmt::format(R"("type": "{}", )", split_words(spec.only).front());
      text = fmt::format(R"({{{}"{}": {}}})", type, name, text);
      rest = dot == rest.npos ? "" : rest.substr(0, dot);
    }
    INFO(text);
    const LoadedConfig loaded = ask(text).check();
    INFO(loaded.way_on);
    const std::string key(spec.key);
    for (std::string part = key;; part = part.substr(0, part.rfind('.'))) {
      CHECK_THAT(loaded.way_on, !Catch::Contains("--ignore " + part));
      if (part.find('.') == part.npos) break;
    }
  }
}

TEST_CASE("way on: names of other programs become the keys that say the same") {
  const auto all = [](const std::string& members) {
    return ask(trains_with(members)).check().way_on;
  };
  const auto set = [](const std::string& name, const std::string& setting) {
    return "it trains with --ignore " + name + " --set " + setting;
  };
  CHECK(all(R"("learning_rate": 1e-4)") ==
        set("learning_rate", "optimizer.type=AdamW --set optimizer.params.lr=1e-04"));
  CHECK(ask(R"({"per_device_train_batch_size": 8})").check().way_on ==
        set("per_device_train_batch_size", "train_micro_batch_size_per_gpu=8"));
  CHECK(all(R"("max_seq_length": 16)") == set("max_seq_length", "dstrain.data.seq_len=16"));
  CHECK(all(R"("max_steps": 16)") == set("max_steps", "dstrain.steps=16"));
  CHECK(all(R"("mixed_precision": "bf16")") == set("mixed_precision", "bf16.enabled=true"));
  CHECK(all(R"("optimizer": {"type": "AdamW", "params": {"lr": 1}, "weight_decay": 0.1})") ==
        set("optimizer.weight_decay", "optimizer.params.weight_decay=0.1"));
  Ask a = ask(trains_with(R"("bf16": true)"));
  CHECK(a.check().way_on == R"(it trains with --set 'bf16={"enabled": true}')");
  a.request.sets = {R"(bf16={"enabled": true})"};
  CHECK(a.job().dtype == DType::bf16);
  // The file's own key decides, as in DeepSpeed.
  CHECK(all(R"("lr": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1}})") ==
        "it trains with --ignore lr");
  CHECK(all(R"("lr_scheduler_type": "cosine", "scheduler": {"type": "WarmupLR"})") ==
        "it trains with --ignore lr_scheduler_type");
  CHECK_THAT(verdict(ask(trains_with(R"("num_train_epochs": 3)")).check(), "num_train_epochs"),
             Catch::Contains("say it with the option --epochs"));
}

TEST_CASE("way on: the name of an optimizer's class becomes the type that computes the same") {
  const auto all = [](const std::string& type, const std::string& params) {
    return ask(trains_with(R"("optimizer": {"type": ")" + type + R"(", "params": {"lr": 3e-4)" +
                           params + "}}"))
        .check()
        .way_on;
  };
  const std::string adamw = "it trains with --set optimizer.type=AdamW";
  CHECK(all("FusedAdam", "") == adamw);
  CHECK(all("DeepSpeedCPUAdam", "") == adamw);
  CHECK(all("FusedAdam", R"(, "adam_w_mode": true)") == adamw);
  CHECK(all("FusedAdam", R"(, "adam_w_mode": false)") ==
        "it trains with --set optimizer.type=Adam --set optimizer.params.adam_w_mode=false");
  CHECK(all("DeepSpeedCPUAdam", R"(, "adamw_mode": false)") ==
        "it trains with --set optimizer.type=Adam --set optimizer.params.adam_w_mode=false");
  CHECK(all("FusedLamb", "") == "it trains with --set optimizer.type=Lamb");
  CHECK(all("DeepSpeedCPULion", "") == "it trains with --set optimizer.type=Lion");
  CHECK(all("adamw_bnb_8bit", "") == "it trains with --set optimizer.type=AdamW8bit");
  CHECK(all("adamw_8bit", "") == "it trains with --set optimizer.type=AdamW8bit");
  CHECK(all("paged_adamw_8bit", "") == "it trains with --set optimizer.type=PagedAdamW8bit");
  CHECK(all("lion_8bit", "") == "it trains with --set optimizer.type=Lion8bit");
  CHECK(all("paged_lion_8bit", "") == "it trains with --set optimizer.type=Lion8bit");
  CHECK(all("adam-w", "") == adamw);
  Ask a = ask(trains_with(R"("optimizer": {"type": "DeepSpeedCPUAdam", "params": {"lr": 3e-4,
    "adamw_mode": false}})"));
  a.request.sets = {"optimizer.type=Adam", "optimizer.params.adam_w_mode=false"};
  CHECK(a.job().optimizer.lr == 3e-4);
  CHECK_FALSE(a.job().optimizer.decoupled_decay);
}

TEST_CASE("way on: an architecture that is not built in is refused by its name") {
  const auto said = [](const std::string& type) {
    return verdict(ask(trains_with(R"("dstrain": {"model": {"type": ")" + type + R"("}})")).check(),
                   "dstrain.model.type");
  };
  for (const char* type :
       {"deepseek_v2", "gpt_oss", "gemma3n", "phi", "falcon", "t5", "bert", "llava"}) {
    INFO(type);
    CHECK_THAT(said(type), Catch::EndsWith(": this architecture is not part of dstrain"));
  }
  CHECK_THAT(said("gemma3"),
             Catch::Contains("dstrain does not train images. Save its text model") &&
                 Catch::Contains("t.save_pretrained(OTHER)"));
  CHECK_THAT(said("qwen4"), !Catch::Contains("did you mean"));
  CHECK_THAT(said("lama"), Catch::EndsWith("(did you mean \"llama\"?)"));
  CHECK_THAT(said("lama"), !Catch::Contains("--set"));
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
  CHECK(all(R"("a key": 1)") == "it trains with --ignore 'a key'");
  CHECK(all(R"("wall_clock_breakdown": "True")") ==
        "it trains with --set wall_clock_breakdown=true");
  CHECK(all(R"("optimizer": {"type": "AdamW", "params": {"lr": "3e-5"}})") ==
        "it trains with --set optimizer.params.lr=3e-5");
  CHECK(all(R"("optimizer": {"type": "AdamW", "params": {"betas": ["0.9", "0.999"]}})") ==
        "it trains with --set 'optimizer.params.betas=[0.9, 0.999]'");
}

TEST_CASE("way on: the keys of a schedule") {
  const auto all = [](const std::string& type, const std::string& params) {
    return ask(trains_with(R"("scheduler": {"type": ")" + type + R"(", "params": {)" + params +
                           "}}"))
        .check()
        .way_on;
  };
  const std::string total = "scheduler.params.total_num_steps";
  CHECK(all("WarmupDecayLR", "") == "it trains with --set " + total + "=auto");
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
        R"(it trains with --ignore fp16.y --set 'fp16={"enabled": true, "y": 1}')");
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
  CHECK(sizes(33, 17, 2, 2).check().way_on.empty());
  for (const int64_t train : {1, 12, 33, 64})
    for (const int64_t each : {0, 1, 5, 64})
      for (const int64_t steps : {0, 1, 3, 64})
        for (const int64_t ranks : {1, 2, 5, 64}) {
          INFO(train << " " << each << " " << steps << " " << ranks);
          const Ask a = sizes(train, each, steps, ranks);
          if (!has_errors(a.check().verdicts)) continue;
          const LoadedConfig on = followed(a).check();
          CHECK(has_errors(on.verdicts) == (train % ranks != 0));
          if (train % ranks == 0) CHECK(on.job.batch.train_batch == train);
        }
}

TEST_CASE("way on: what no option answers is named") {
  Ask a = ask(trains_with(R"("hosts_list": 5)"), {"steps_per_print=-1"});
  CHECK(a.check().way_on == "what is left to mend with --ignore hosts_list: steps_per_print");
  CHECK(a.check().verdicts[0].way_on ==
        "DeepSpeed ignores it; `--ignore hosts_list` goes on without it");
  a = ask(trains_with(R"("hosts_list": 5)"));
  a.request.need_data = true;
  CHECK_THROWS_WITH(
      a.load(),
      Catch::EndsWith("\n  what is left to mend with --ignore hosts_list: dstrain.data.path"));
  CHECK(ask("{").check().way_on.empty());
}

TEST_CASE("way on: a section is no second error") {
  const LoadedConfig loaded =
      ask(trains_with(
              R"("fp16": {"opt_level": 1}, "elasticity": {"enabled": true, "min_gpus": 5})"))
          .check();
  CHECK(verdict(loaded, "fp16") == "honoured: see fp16.opt_level");
  CHECK(verdict(loaded, "elasticity") == "honoured: see elasticity.enabled");
}
