#include "runtime/config/report/resolved_config.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "runtime/config/read/resolved_source.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

// A resolved configuration names the output directory, whoever has chosen it.
static Job with_named_output(Job job) {
  job.output_by_default = false;
  return job;
}

TEST_CASE("resolved configuration: rebuilds the same job") {
  const std::string members = GENERATE(
      as<std::string>{}, "", R"("bf16": {"enabled": true}, "communication_data_type": "fp32")",
      R"("fp16": {"enabled": "true", "min_loss_scale": 2, "hysteresis": 3})",
      R"("fp16": {"enabled": true, "loss_scale": 128}, "data_types": {"grad_accum_dtype": "half"})",
      R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "lr": 3e-4, "betas": [0.1, 0.2]}},
         "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [0.3]}})",
      R"("optimizer": {"type": "SGD", "params": {"momentum": 0.9, "nesterov": true}},
         "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}})",
      R"("scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": "auto"}})",
      R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 5e3, "warmup_type": "linear"}})",
      R"("scheduler": {"type": "LRRangeTest"})",
      R"("optimizer": {"type": "Muon", "params": {"adam_lr": 0.5}}, "scheduler": {"type": "WarmupLR"})",
      R"("optimizer": {"type": "Muon", "params": {"adam_w_mode": false}})",
      R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}})",
      R"("zero_optimization": {"reduce_bucket_size": "auto"}, "gradient_clipping": 0)",
      R"("dstrain": {"model": {"type": "benchmark", "in_size": 2, "hidden_size": 3, "out_size": 4, "n_layer": 5}})",
      R"("pipeline": {"activation_checkpoint_interval": 2})",
      R"("pipeline": {"activation_checkpoint_interval": "auto"}, "dstrain": {"recompute": 3})",
      R"("dstrain": {"recompute": "SELECTIVE"})",
      R"("aio": {"block_size": 8192, "queue_depth": 2, "single_submit": true, "overlap_events": false})",
      R"("dstrain": {"model": {"n_embd": 96, "activation": "GELU"}, "data": {"path": "a \"b\".txt", "format": "byte"},
                     "weight_decay_exclude": ["*.bias", "\\"], "reduce": "micro_batch", "seed": 9007199254740993})");
  Ask a = ask(trains_with(members), {}, 3);
  a.request.output = "out";
  a.request.resume = "old";
  a.request.overwrite = true;
  a.request.resume_with_changes = true;
  const LoadedConfig loaded = a.load();
  CHECK(job_from_resolved(resolved_config_json(loaded), model_registry()) == loaded.job);
  // It is a configuration, too.
  const Ask again{.text = resolved_config_json(loaded), .request = a.request};
  CHECK(again.load().job == loaded.job);
  std::set<std::string> keys;
  for (const Setting& setting : loaded.settings) {
    CAPTURE(setting.key);
    CHECK(keys.insert(setting.key).second);  // an object of JSON has a key once
  }
}

TEST_CASE("resolved configuration: what followed from other values follows again") {
  Ask a = ask(
      R"({"train_micro_batch_size_per_gpu": 2, "dstrain": {"data": {"path": "t.txt"}, "steps": 10},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}})",
      {}, 2);
  a.request.device = "cpu";
  a.request.init_weights = "w.safetensors";
  const TempFile file(resolved_config_json(a.load()), "resolved_config.json");
  ConfigRequest request;
  request.models = &model_registry();
  request.path = file.path();
  request.steps = 30;
  complete_request(request);
  CHECK(request.device == "cpu");
  CHECK(request.init_weights == "w.safetensors");
  CHECK(request.recorded_ranks == 2);
  request.ranks = 4;
  const LoadedConfig loaded = load_config(request);
  CHECK(loaded.job.batch.train_batch == 8);
  CHECK(loaded.job.schedule.total_num_steps == 30);
  CHECK(loaded.job.data.paths == std::vector<std::string>{"t.txt"});
  CHECK(setting(loaded, "dstrain.seed").origin == "default");
  CHECK(setting(loaded, "scheduler.params.total_num_steps").origin.starts_with("auto"));
  // The default output has the name of the run's folder.
  const std::string folder = std::filesystem::path(file.path()).parent_path().filename().string();
  CHECK(loaded.job.output == "runs/" + folder);
  CHECK(loaded.job.output_by_default);
}

TEST_CASE("resolved configuration: the first weights of a run outlive its resumes") {
  const TempDir runs;
  const auto write = [&runs](const std::string& name, const LoadedConfig& loaded) {
    std::filesystem::create_directory(runs.path() + "/" + name);
    runs.write(name + "/resolved_config.json", resolved_config_json(loaded));
    return runs.path() + "/" + name;
  };
  Ask a = ask(trains_with(""));
  a.request.init_weights = "w.safetensors";
  Ask resumed = ask(trains_with(""));
  resumed.request.resume = write("first", a.load());
  CHECK(resumed.job().base_weights == "w.safetensors");
  Ask again = ask(trains_with(""));
  again.request.resume = write("second", resumed.load());
  CHECK(again.job().base_weights == "w.safetensors");
  CHECK(job_from_resolved(resolved_config_json(again.load()), model_registry()).base_weights ==
        "w.safetensors");
  // Fresh weights are known, too; those of a run without a file are not.
  resumed.request.resume = write("fresh", ask(trains_with("")).load());
  CHECK(resumed.job().base_weights == "");
  resumed.request.resume = runs.path() + "/nowhere";
  CHECK_FALSE(resumed.job().base_weights);
}

TEST_CASE("resolved configuration: holds every value with its origin") {
  const LoadedConfig loaded = ask("{\n\"train_batch_size\": 8}", {}, 2).load();
  const auto values = nlohmann::json::parse(resolved_config_json(loaded))["values"];
  CHECK(values["train_batch_size"]["value"] == 8);
  CHECK(values["train_batch_size"]["origin"] == "c.json:2:1");
  CHECK(values["train_micro_batch_size_per_gpu"]["value"] == 4);
  CHECK(values["train_micro_batch_size_per_gpu"]["origin"] ==
        "derived: train_batch_size / 2 ranks");
  CHECK(values["optimizer.params.lr"]["origin"] == "default");
  CHECK(values["optimizer.type"]["value"] == "AdamW");
  CHECK(values["dstrain.seed"]["value"] == 1337);
  CHECK(values["run.ranks"]["origin"] == "--num_gpus");
  CHECK_FALSE(values.contains("dstrain.model.vocab_size"));
}

TEST_CASE(
    "resolved configuration: FSDP's name of a stage stands beside the stage, where it was given") {
  const LoadedConfig loaded =
      ask("{\n\"train_batch_size\": 8, \"dstrain\": {\n \"sharding\": \"FULL_SHARD\"}}", {}, 2)
          .load();
  const std::string text = resolved_config_json(loaded);
  const auto values = nlohmann::json::parse(text)["values"];
  CHECK(values["dstrain.sharding"]["value"] == "FULL_SHARD");
  CHECK(values["dstrain.sharding"]["origin"] == "c.json:3:2");
  CHECK(values["zero_optimization.stage"]["value"] == 3);
  CHECK(job_from_resolved(text, model_registry()) == with_named_output(loaded.job));
  const std::string without = resolved_config_json(ask("{\"train_batch_size\": 8}", {}, 2).load());
  CHECK_FALSE(nlohmann::json::parse(without)["values"].contains("dstrain.sharding"));
}

TEST_CASE("resolved configuration: the job has the last word on what is settled after loading") {
  LoadedConfig loaded = ask(trains_with("")).load();
  loaded.job.model.set("vocab_size", 77);
  loaded.job.device = DeviceChoice::cpu;
  const std::string text = resolved_config_json(loaded);
  const auto values = nlohmann::json::parse(text)["values"];
  CHECK(values["dstrain.model.vocab_size"]["value"] == 77);
  CHECK(values["dstrain.model.vocab_size"]["origin"] == "derived: the data");
  CHECK(values["run.device"]["origin"] == "derived: this machine");
  CHECK(job_from_resolved(text, model_registry()) == with_named_output(loaded.job));
}

TEST_CASE("resolved configuration: a file that is none is an error that says what was expected") {
  const auto [text, error] = GENERATE(table<std::string, std::string>({
      {"", "r.json:1:1: expected '{' at the start of the configuration, found the end of the text"},
      {"{}", "r.json: expected the member \"values\" of a resolved configuration"},
      {R"({"values": {"train_batch_size": 5}})", "r.json:1: train_batch_size has no \"value\""},
      {R"({"values": {"a": {"value": 1}, "a.b": {"value": 1}}})", "r.json:1: a.b is out of place"},
      {R"({"values": {"run.ranks": {"value": -1}}})",
       "--num_gpus -1: expected from 1 to 1048576 ranks"},
      {R"({"values": {"train_batch_size": {"value": "x"}}})",
       "r.json:1:43: train_batch_size: expected an integer from 1 to 2147483647, found \"x\""},
  }));
  CHECK_THROWS_WITH(job_from_resolved(text, model_registry(), "r.json"), error);
}
