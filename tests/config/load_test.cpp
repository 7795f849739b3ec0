#include "runtime/config/load.h"

#include <catch2/catch.hpp>

#include "models/registry.h"
#include "tests/config/config_fixture.h"
#include "tests/support/models.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("load: the command line beats --set, which beats the file") {
  Ask a =
      ask(trains_with(
              R"("dstrain": {"steps": 1, "seed": 2, "save_interval": 3, "data": {"path": "f"}})"),
          {"dstrain.steps=10", "dstrain.seed=20", "dstrain.seed=21", "dstrain.data.path=s"});
  a.request.steps = 100;
  a.request.data = "c";
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.steps == 100);
  CHECK(loaded.job.seed == 21);
  CHECK(loaded.job.save_interval == 3);
  CHECK(loaded.job.data.paths == std::vector<std::string>{"c"});
  CHECK(setting(loaded, "dstrain.steps").origin == "--steps");
  CHECK(setting(loaded, "dstrain.seed").origin == "--set");
  CHECK(setting(loaded, "dstrain.save_interval").origin == "c.json:1:37");
  CHECK(setting(loaded, "dstrain.data.path").origin == "--data");
  CHECK(setting(loaded, "dstrain.eval_interval").origin == "default");
  CHECK(setting(loaded, "dstrain.reduce").origin == "derived: stage 0");
  CHECK(setting(loaded, "run.ranks").origin == "the default");
}

TEST_CASE("load: --set makes sections on the way and takes values of any kind") {
  const Job job =
      ask("{}", {"train_batch_size=8", "optimizer.type=Adam", "optimizer.params.betas=[0.8, 0.9]",
                 "dstrain.model.activation=\"gelu\"", "bf16.enabled=true", "dstrain.steps=5e2"})
          .job();
  CHECK(job.batch.train_batch == 8);
  CHECK(job.optimizer.beta1 == 0.8);
  CHECK(job.model.text("activation") == "gelu");
  CHECK(job.dtype == DType::bf16);
  CHECK(job.steps == 500);
  CHECK(ask(trains_with("\"zero_optimization\": true"), {"zero_optimization.stage=0"})
            .job()
            .zero_stage == 0);
  const std::vector<std::string> overlap{"zero_optimization.overlap_comm=false"};
  CHECK(ask(trains_with("\"zero_optimization\": true"), overlap).job().zero_stage == 1);
  CHECK(ask(trains_with("\"zero_optimization\": false"), overlap).job().zero_stage == 0);
}

TEST_CASE("load: what is said of a --set that cannot be used") {
  const auto [set, error] = GENERATE(table<std::string, std::string>({
      {"steps", "--set steps: expected path.to.key=value"},
      {"=5", "--set =5: expected path.to.key=value"},
      {"a..b=5", "--set a..b=5: expected path.to.key=value"},
      {".a=5", "--set .a=5: expected path.to.key=value"},
      {"a=[1, 2", "--set a=[1, 2: the '[' of line 1, column 1 is not closed: expected ']'"},
      {"a=", "--set a=: expected a value, found the end of the text"},
      {"dstrain.stepz=5", "--set: dstrain.stepz: unknown key (did you mean dstrain.steps?)"},
      {"dstrain.steps=nan",
       "--set: dstrain.steps: expected an integer of at least 0, found \"nan\""},
      {"train_micro_batch_size_per_gpu.x=1",
       "--set: a key above train_micro_batch_size_per_gpu.x is not a "
       "section { }"},
      {"wall_clock_breakdown=True",
       "--set: wall_clock_breakdown: expected true or false, found \"True\": write true"},
  }));
  CHECK(ask(trains_with(""), {set}).error() == error);
  CHECK(ask(trains_with(""), {std::string(300, 'a') + "=1"})
            .error()
            .find("the key is longer than 200 characters") != std::string::npos);
}

TEST_CASE("load: --set below a section that is true or false is an error") {
  CHECK(ask(trains_with("\"fp16\": true"), {"fp16.initial_scale_power=12"}).error() ==
        "--set: a key above fp16.initial_scale_power is not a section { }");
}

TEST_CASE("load: options out of range name themselves") {
  Ask a = ask(trains_with(""));
  a.request.steps = -3;
  CHECK(a.error() == "--steps: dstrain.steps: expected an integer of at least 0, found -3");
  a = ask(trains_with(""));
  a.request.device = "gpu";
  CHECK(a.error() == "--device gpu: expected auto, cpu or cuda (or emulated, a device for tests)");
  a = ask(trains_with(""), {}, 1);
  a.request.ranks = 0;
  CHECK(a.error() == "--num_gpus 0: expected from 1 to 1048576 ranks");
  a = ask(trains_with(""));
  a.request.output = "";
  CHECK(a.error() == "--output: expected the name of a directory, found nothing");
  a = ask(trains_with(""));
  a.request.model = "gpt3";
  CHECK(a.error() ==
        "--model gpt3: expected gptlite, benchmark, gpt2, llama, mistral, qwen2, qwen3, mixtral, "
        "qwen2_moe, qwen3_moe, olmoe, deepseek_v3, gemma, "
        "gemma2, gemma3_text, gpt_neox, resnet, exported, the folder "
        "of "
        "a model with config.json, or a file that ends in .json or .pt2");
  const TempDir dir;
  a.request.model = dir / "m.json";
  CHECK(a.error() ==
        "cannot read the model file " + dir / "m.json" + ": No such file or directory");
}

TEST_CASE("load: --model replaces the whole section, and --set refines it") {
  const std::string text = trains_with(R"("dstrain": {"model": {"n_layer": 3, "n_embd": 96}})");
  Ask a = ask(text);
  a.request.model = "gptlite";
  CHECK(a.job().model == GptLite{});
  a.request.sets = {"dstrain.model.n_layer=5"};
  CHECK(a.job().model.integer("n_layer") == 5);
  a.request.model = "benchmark";
  a.request.sets = {"dstrain.model.in_size=2", "dstrain.model.hidden_size=3",
                    "dstrain.model.out_size=4", "dstrain.model.n_layer=1"};
  CHECK(a.job().model.integer("hidden_size") == 3);

  const TempFile file("{\"n_layer\": 7,\n \"n_head\": 3.5}", "m.json");
  a = ask(text);
  a.request.model = file.path();
  CHECK(without_folder(a.error(), file) ==
        "m.json:2:2: dstrain.model.n_head: expected an integer from 1 to 2147483647, found 3.5");
  a.request.sets = {"dstrain.model.n_head=3"};
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.model.integer("n_layer") == 7);
  CHECK(loaded.job.model.integer("n_embd") == 768);
  CHECK(without_folder(setting(loaded, "dstrain.model.n_layer").origin, file) == "m.json:1:2");
  const TempFile broken("{\"n_layer\": }", "m.json");
  a.request.model = broken.path();
  CHECK(without_folder(a.error(), broken) == "m.json:1:13: expected a value, found '}'");
}

TEST_CASE("load: what only the command line knows reaches the job") {
  Ask a = ask(trains_with(""), {}, 3);
  CHECK(a.job().output == "runs/c");
  CHECK(a.job().output_by_default);
  CHECK(a.job().device == DeviceChoice::automatic);
  a.request.device = "cpu";
  a.request.output = "out";
  a.request.init_weights = "w.safetensors";
  a.request.resume = "old";
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.ranks == 3);
  CHECK(loaded.job.device == DeviceChoice::cpu);
  CHECK(loaded.job.output == "out");
  CHECK(loaded.job.init_weights == "w.safetensors");
  CHECK(loaded.job.resume == "old");
  CHECK(setting(loaded, "run.device").origin == "--device");
  CHECK(setting(loaded, "run.ranks").origin == "--num_gpus");
}

TEST_CASE("load: --tensor_parallel_size is tensor_parallel.autotp_size") {
  Ask a = ask(trains_with(R"("tensor_parallel": {"autotp_size": 2})"), {}, 4);
  CHECK(a.job().tensor_ranks == 2);
  a.request.tensor_parallel = 1;
  CHECK(a.job().tensor_ranks == 1);
  a = ask(trains_with(""), {}, 4);
  a.request.tensor_parallel = 3;
  CHECK(a.error() ==
        "--tensor_parallel_size: tensor_parallel.autotp_size: 3 tensor ranks do not divide 4 ranks "
        "(--num_gpus) evenly: expected a multiple of 3 ranks, or 1, 2 or 4");
}

TEST_CASE("load: a resume goes on in the folder of the run that it resumes") {
  const auto [resume, output] = GENERATE(table<std::string, std::string>({
      {"out", "out"},
      {"a/out/", "a/out"},
      {"out/checkpoints", "out"},
      {"/a/out/checkpoints/", "/a/out"},
      {"out/checkpoints/step_4", "out"},
      {"../out/./checkpoints/step_4.old/", "../out"},
      {"checkpoints/step_4", "."},
      {"kept/step_4", "kept"},
  }));
  Ask a = ask(trains_with(""));
  a.request.resume = resume;
  CHECK(a.job().output == output);
  CHECK(setting(a.load(), "run.output").origin == "derived: --resume");
  a.request.output = "other";
  CHECK(a.job().output == "other");
}

TEST_CASE("load: all reasons are told at once, each with its place, none twice") {
  const std::string text = R"({
  "train_batch_size": 33, "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "MuAdam", "params": {"lr": 1e-3}},
  "zero_optimization": {"stage": 2, "legacy_stage1": true, "stage3_max_reuse_distance": 1},
  "tensorboard": {"enabled": true, "job_name": "x"},
  "gradient_cliping": 1.0,
  "compression_training": {"x": {"y": 1}},
  "steps_per_print": 0
})";
  CHECK(ask(text, {}, 2).error() ==
        "c.json:2:3: train_batch_size: train_batch_size 33, train_micro_batch_size_per_gpu 2 and 2 "
        "ranks "
        "(--num_gpus) do not fit: train_batch_size = train_micro_batch_size_per_gpu x "
        "gradient_accumulation_steps x ranks. Valid: train_batch_size 32 = "
        "train_micro_batch_size_per_gpu 2 x "
        "gradient_accumulation_steps 8 x 2 ranks\n"
        "c.json:3:17: optimizer.type: MuAdam is not part of dstrain: use AdamW, Adam, SGD, "
        "Adagrad, Lion, Lamb, Muon, OneBitAdam, OneBitLamb, ZeroOneAdam, AdamW8bit, PagedAdamW8bit "
        "or "
        "Lion8bit\n"
        "c.json:4:37: zero_optimization.legacy_stage1: DeepSpeed refuses it too: use false\n"
        "c.json:6:3: gradient_cliping: unknown key (did you mean gradient_clipping?)\n"
        "c.json:7:3: compression_training: removed from DeepSpeed (0.19.8), and compression is not "
        "part "
        "of dstrain: remove the section\n"
        "c.json:8:3: steps_per_print: expected an integer of at least 1, found 0");
}

TEST_CASE("load: what only watches a run is missed with one warning, and stops nothing") {
  const LoadedConfig loaded =
      ask(trains_with(R"("tensorboard": {"enabled": true, "job_name": "x", "colour": 1},
 "wandb": {"enabled": false}, "activation_checkpointing": {"profile": true})"))
          .load();
  CHECK(loaded.warnings ==
        std::vector<std::string>{
            "c.json:1:52: tensorboard.colour: unknown key",
            "c.json:2:60: activation_checkpointing.profile: not available yet: the run goes on "
            "without it (metrics.jsonl has step_ms)"});
}

TEST_CASE("load: an ignored key counts as not written, with one line") {
  const std::string text = trains_with(R"("amp": {"enabled": true, "opt_level": "O2"},
 "seed": 3, "gradient_clipping": -1, "zero_optimization": {"stage": 1, "legacy_stage1": true})");
  CHECK(ask(text).error() != "no error");
  Ask a = ask(text);
  a.request.ignored = {"amp", "seed", "gradient_clipping", "zero_optimization.legacy_stage1"};
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.gradient_clipping == 1);
  CHECK(loaded.job.zero_stage == 1);
  CHECK(verdict(loaded, "amp") == "no_effect: ignored, as --ignore amp says");
  CHECK(verdict(loaded, "amp.opt_level") == "no_effect: inside amp");
  REQUIRE(loaded.warnings.size() == 4);
  CHECK(loaded.warnings[0] == "c.json:1:2: amp: ignored, as --ignore amp says");

  a.request.ignored = {};
  a.request.sets = {
      R"(dstrain.ignore=["amp", "seed", "gradient_clipping", "zero_optimization.legacy_stage1"])"};
  CHECK(a.job() == loaded.job);
  CHECK(a.load().warnings[1] == "c.json:2:2: seed: ignored, as dstrain.ignore says");

  a.request.ignored = {"sede"};
  CHECK(a.load().warnings.back() == "--ignore: sede: the ignored key is not in the configuration");
}

TEST_CASE("load: an ignored key that the file has twice is ignored at both places") {
  Ask a = ask(trains_with(R"("bf16": {"enabled": true}, "bf16": {"enabled": true},
    "gradient_clipping": 5, "gradient_clipping": 6)"));
  a.request.ignored = {"bf16", "gradient_clipping"};
  CHECK(a.job().dtype == DType::f32);
  CHECK(a.job().gradient_clipping == 1);
  a.request.ignored = {"bf16.enabled", "gradient_clipping"};
  a.request.sets = {R"(bf16={"enabled": true})"};
  CHECK(a.job().dtype == DType::f32);
}

TEST_CASE("load: an option overrules a key that is ignored, as it overrules the file's") {
  Ask a = ask(trains_with(R"("dstrain": {"steps": 5})"));
  a.request.ignored = {"dstrain.steps"};
  const int64_t unset = a.job().steps;
  CHECK(unset != 5);
  a.request.steps = 7;
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.steps == 7);
  CHECK(verdict(loaded, "dstrain.steps") == "honoured");
  CHECK(loaded.warnings.empty());
}

TEST_CASE("load: a key with a dot in its own name can be ignored") {
  Ask a = ask(trains_with(R"("fp16.enabled": true, "x": {"y.z": {"a": 1}})"));
  CHECK_THAT(a.error(), Catch::Contains("fp16.enabled: unknown key"));
  a.request.ignored = {"fp16.enabled", "x", "x.y.z.a"};
  CHECK(a.load().warnings ==
        std::vector<std::string>{"c.json:1:2: fp16.enabled: ignored, as --ignore fp16.enabled says",
                                 "c.json:1:24: x: ignored, as --ignore x says"});
  CHECK(a.job().dtype == DType::f32);
}

TEST_CASE("load: of two names of a key one may be ignored") {
  Ask a = ask(trains_with(R"("bf16": {"enabled": true}, "bfloat16": {"enabled": false})"));
  CHECK(a.error() != "no error");
  a.request.ignored = {"bfloat16"};
  CHECK(a.job().dtype == DType::bf16);
}

TEST_CASE("load: malformed text is one error with its place") {
  CHECK(ask("{\n \"a\": True}").error() == "c.json:2:7: 'True' is not JSON: write true");
  ConfigRequest request;
  request.models = &model_registry();
  const TempDir dir;
  request.path = dir / "c.json";
  CHECK_THROWS_WITH(load_config(request), "cannot read the configuration " + request.path +
                                              ": No such file or directory");
  CHECK_THROWS_AS(check_config(request), UserError);
}

TEST_CASE("load: no file, however wrong, reaches the job with an illegal value") {
  const LoadedConfig loaded =
      ask(R"({"train_batch_size": -1, "gradient_clipping": -1, "steps_per_print": 0,
    "optimizer": {"type": "Adam", "params": {"lr": "x", "betas": [1, 2], "eps": -1}},
    "scheduler": {"type": "OneCycle", "params": {"cycle_first_step_size": -5}},
    "fp16": {"enabled": true, "initial_scale_power": 1000, "hysteresis": 99999999999},
    "dstrain": {"model": {"n_embd": 0, "n_head": 0, "dropout": 2}, "steps": -1, "seed": -1}})")
          .check();
  CHECK(has_errors(loaded.verdicts));
  CHECK(loaded.job.optimizer == OptimizerConfig{});
  CHECK(loaded.job.model == GptLite{});
  CHECK(loaded.job.steps == 1000);
  CHECK(loaded.job.loss_scale.initial == 65536);
}

TEST_CASE("load: old names are a warning for rank 0") {
  CHECK(ask(trains_with(R"("bfloat16": {"enabled": true})")).load().warnings ==
        std::vector<std::string>{"c.json:1:2: bfloat16: another name of bf16",
                                 "c.json:1:15: bfloat16.enabled: another name of bf16.enabled"});
}
