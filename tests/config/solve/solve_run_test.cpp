#include "runtime/config/solve/solve_run.h"

#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"
#include "tests/support/models.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
std::string ours(const std::string& members) {
  return trains_with("\"dstrain\": {" + members + "}");
}
std::string model(const std::string& members) {
  return ours("\"model\": {" + members + "}");
}
}  // namespace

TEST_CASE("run: the section dstrain has its published defaults") {
  const Job job = ask(trains_with("")).job();
  CHECK(job.model == GptLite{});
  CHECK(job.data == DataConfig{});
  CHECK(job.steps == 1000);
  CHECK(job.seed == 1337);
  CHECK(job.eval_interval == 0);
  CHECK(job.eval_samples == 160);
  CHECK(job.save_interval == 0);
  CHECK(job.weight_decay_exclude.empty());
}

TEST_CASE("run: the section comms_logger reaches the job if it is on") {
  CHECK_FALSE(ask(trains_with("")).job().comms_logger.enabled);
  CHECK(ask(trains_with(R"("comms_logger": {"verbose": true})")).job().comms_logger ==
        CommsLoggerConfig{});
  CHECK(ask(trains_with(R"("comms_logger": {"enabled": true, "verbose": true, "prof_all": false,
                                            "prof_ops": ["send", "recv"]})"))
            .job()
            .comms_logger == CommsLoggerConfig{true, true, false, {"send", "recv"}});
}

TEST_CASE("run: flops_profiler and memory_breakdown reach the job if they are on") {
  const Job off = ask(trains_with(R"("flops_profiler": {"profile_step": 3})")).job();
  CHECK(off.flops_profiler == FlopsProfilerConfig{});
  CHECK_FALSE(off.memory_breakdown);
  const Job on = ask(trains_with(R"("memory_breakdown": true, "flops_profiler": {"enabled": true,
          "profile_step": 3, "module_depth": 2, "top_modules": 4, "detailed": false,
          "output_file": "a/profile.txt", "recompute_fwd_factor": 0.5})"))
                     .job();
  CHECK(on.flops_profiler == FlopsProfilerConfig{true, 3, 2, 4, false, "a/profile.txt", 0.5});
  CHECK(on.memory_breakdown);
  CHECK(ask(trains_with(R"("flops_profiler": {"enabled": true, "profile_step": -1})"))
            .job()
            .flops_profiler.profile_step == -1);
  const Job unset =
      ask(trains_with(R"("flops_profiler": {"enabled": true, "output_file": null})")).job();
  CHECK(unset.flops_profiler.enabled);
  CHECK(unset.flops_profiler.output_file.empty());
}

TEST_CASE("run: every key of the section dstrain reaches the job") {
  const Job job =
      ask(ours(R"("model": {"n_layer": 2, "n_embd": 96, "n_head": 3, "block_size": 64, "dropout": 0,
      "activation": "gelu", "qkv_bias": true, "tied_head": true, "vocab_size": 99},
    "data": {"path": "a.txt", "format": "char", "order": "sequential", "val_fraction": 0.2,
             "loss_on": "completion", "skip_invalid": true,
             "chat_template": "own.jinja"},
    "steps": 5e2, "seed": 7, "eval_interval": 10, "eval_samples": 3, "save_interval": 50,
    "weight_decay_exclude": ["*.bias"], "reduce": "micro_batch")"))
          .job();
  CHECK(job.model == GptLite{2, 96, 3, 64, 0, true, true, true, 99});
  CHECK(job.data == DataConfig{{"a.txt"},
                               "",
                               DataFormat::characters,
                               TokenDtype::automatic,
                               "",
                               false,
                               0.2,
                               Packing::none,
                               TooLong::cut,
                               LossOn::completion,
                               true,
                               "own.jinja"});
  CHECK(job.steps == 500);
  CHECK(job.seed == 7);
  CHECK(job.eval_interval == 10);
  CHECK(job.eval_samples == 3);
  CHECK(job.save_interval == 50);
  CHECK(job.weight_decay_exclude == std::vector<std::string>{"*.bias"});
  CHECK(job.reduce == ReduceMode::micro_batch);
}

TEST_CASE("run: the benchmark model needs its sizes and makes its own samples") {
  const std::string text = ours(
      R"("model": {"type": "benchmark", "in_size": 3, "hidden_size": 5, "out_size": 7, "n_layer": 2},
         "data": {"order": "random"})");
  const LoadedConfig loaded = ask(text).load();
  CHECK(loaded.job.model ==
        BenchmarkModel{.n_layer = 2, .in_size = 3, .hidden_size = 5, .out_size = 7});
  CHECK_FALSE(loaded.job.data.random_order);
  CHECK(verdict(loaded, "dstrain.data.order") ==
        "no_effect: the benchmark model makes its own samples");
  Ask training = ask(text);
  training.request.need_data = true;
  CHECK(training.error() == "no error");
}

TEST_CASE("run: the parameters of the benchmark model are counted layer by layer") {
  const auto parameters = [](int64_t layers, int64_t hidden) {
    return verdict(ask(trains_with(""),
                       {fmt::format(R"(dstrain.model={{"type": "Benchmark", "in_size": 2147483647,
                           "hidden_size": {}, "out_size": 4, "n_layer": {}}})",
                                    hidden, layers)})
                       .check(),
                   "dstrain.model");
  };
  CHECK(parameters(1, 2147483647) == "honoured");
  CHECK(parameters(2, 8) == "honoured");
  CHECK(parameters(2048, 8) == "honoured");
  CHECK(parameters(2, 2147483647) ==
        "error: about 4.6e+18 parameters are more than can be counted");
  CHECK(parameters(2048, 2147483647) ==
        "error: about 9.4e+21 parameters are more than can be counted");
}

TEST_CASE("run: a value that is illegal is the only error, whatever its default contradicts") {
  const auto [sets, expected] = GENERATE(table<std::vector<std::string>, std::string>({
      {{"dstrain.model.block_size=0", "train_micro_batch_size_per_gpu=2000000"},
       "--set: dstrain.model.block_size: expected an integer from 1 to 2147483647, found 0"},
      {{"dstrain.model.n_layer=0", "gradient_accumulation_steps=200000"},
       "--set: dstrain.model.n_layer: expected an integer from 1 to 2048, found 0"},
      {{"dstrain.model.n_embd=0", "dstrain.model.block_size=2147483647",
        "dstrain.model.vocab_size=2147483647", "train_micro_batch_size_per_gpu=1"},
       "--set: dstrain.model.n_embd: expected an integer from 1 to 2147483647, found 0"},
      {{"dstrain.model.type=bench", "dstrain.model.in_size=3"},
       "--set: dstrain.model.type: expected one of \"gptlite\", \"benchmark\", \"gpt2\", "
       "\"llama\", \"mistral\", \"qwen2\", \"qwen3\", \"mixtral\", \"qwen2_moe\", \"qwen3_moe\", "
       "\"olmoe\", \"deepseek_v3\", \"gemma\", \"gemma2\", \"gemma3_text\", "
       "\"gpt_neox\", \"resnet\", \"exported\", found \"bench\""},
      {{"zero_optimization.stage=7", "dstrain.sharding=FULL_SHARD"},
       "--set: zero_optimization.stage: expected an integer from 0 to 3, found 7"},
      {{"fp16.enabled=maybe", "data_types.param_dtype=fp16", "data_types.grad_accum_dtype=fp16"},
       "--set: fp16.enabled: expected true or false, found \"maybe\""},
      {{"fp16.enabled=true", "fp16.initial_scale_power=-1", "fp16.min_loss_scale=100000"},
       "--set: fp16.initial_scale_power: expected an integer from 0 to 126, found -1"},
      {{"optimizer.type=SGD", "optimizer.params.momentum=-1", "optimizer.params.nesterov=true"},
       "--set: optimizer.params.momentum: expected a number of at least 0, found -1"},
      {{"optimizer.type=Lamb", "optimizer.params.max_coeff=-1", "optimizer.params.min_coeff=20"},
       "--set: optimizer.params.max_coeff: expected a number of at least 0, found -1"},
      {{"pipeline.stages=0", "train_batch_size=2"},
       "--set: pipeline.stages: expected an integer from 1 to 4096, found 0"},
      {{"pipeline.stages=2", "pipeline.schedule=2F", "pipeline.virtual_stages=2"},
       "--set: pipeline.schedule: expected one of \"gpipe\", \"1f1b\", \"interleaved\", "
       "\"zb-h1\", \"zb-v\", \"loopedbfs\", \"interleaved1f1b\", "
       "\"interleavedzerobubble\", \"zbvzerobubble\", found \"2F\""},
  }));
  INFO(sets.back());
  CHECK(ask(trains_with(""), sets, 4).error() == expected);
}

TEST_CASE("run: one of a thing has no plural") {
  CHECK_THAT(ask("{}", {"train_batch_size=3", "train_micro_batch_size_per_gpu=2"}, 1).error(),
             Catch::Contains(" and 1 rank (--num_gpus) do not fit"));
  CHECK_THAT(ask(trains_with(""), {"pipeline.stages=2"}, 1).error(),
             Catch::Contains("2 stages do not divide 1 rank (--num_gpus)"));
  CHECK(setting(ask(trains_with(""), {}, 1).load(), "train_batch_size").origin ==
        "derived: train_micro_batch_size_per_gpu x gradient_accumulation_steps x 1 rank");
}

TEST_CASE("run: what is said of values that cannot be used") {
  const auto [text, key, expected] = GENERATE(table<std::string, std::string, std::string>({
      {model(R"("n_embd": 100, "n_head": 3)"), "dstrain.model.n_head",
       "error: n_embd 100 is not a multiple of n_head 3"},
      {model(R"("n_embd": 100)"), "dstrain.model.n_embd",
       "error: n_embd 100 is not a multiple of n_head 12"},
      {model(R"("n_layer": 0)"), "dstrain.model.n_layer",
       "error: expected an integer from 1 to 2048, found 0"},
      {model(R"("dropout": 1)"), "dstrain.model.dropout",
       "error: expected a number from 0 to below 1, found 1"},
      {model(R"("type": "gpt_lite")"), "dstrain.model.type",
       "error: expected one of \"gptlite\", \"benchmark\", \"gpt2\", \"llama\", \"mistral\", "
       "\"qwen2\", "
       "\"qwen3\", \"mixtral\", \"qwen2_moe\", \"qwen3_moe\", \"olmoe\", \"deepseek_v3\", "
       "\"gemma\", \"gemma2\", "
       "\"gemma3_text\", \"gpt_neox\", \"resnet\", \"exported\", "
       "found "
       "\"gpt_lite\" (did "
       "you mean \"gptlite\"?)"},
      {model(R"("in_size": 3)"), "dstrain.model.in_size",
       "error: belongs to benchmark, not to gptlite"},
      {model(R"("type": "benchmark", "n_layer": 2, "in_size": 2, "hidden_size": 2)"),
       "dstrain.model.out_size",
       "error: the benchmark model needs it: add --set dstrain.model.out_size=64, for example"},
      {ours(R"("data": {"format": "bin"})"), "dstrain.model.vocab_size",
       "error: missing: data of format bin does not say it; give the tokenizer's number of tokens"},
      {ours(R"("data": {"format": "byte"}, "model": {"vocab_size": 65})"),
       "dstrain.model.vocab_size", "error: 65 is less than the 256 of data of format byte"},
      {ours(R"("data": {"path": ""})"), "dstrain.data.path",
       "error: is empty: name a text or token file"},
      {ours(R"("data": {"val_fraction": 1})"), "dstrain.data.val_fraction",
       "error: expected a number from 0 to below 1, found 1"},
      {ours(R"("steps": -1)"), "dstrain.steps",
       "error: expected an integer of at least 0, found -1"},
      {ours(R"("seed": -1)"), "dstrain.seed", "error: expected an integer of at least 0, found -1"},
      {ours(R"("eval_samples": 0)"), "dstrain.eval_samples",
       "error: expected an integer of at least 1, found 0"},
      {ours(R"("model": {"n_layer": 20000})"), "dstrain.model.n_layer",
       "error: expected an integer from 1 to 2048, found 20000"},
      {ours(R"("model": {"n_layer": 2048})"), "dstrain.model.n_layer", "honoured"},
      {model(R"("type": "GPTLite")"), "dstrain.model.type", "honoured"},
      {model(R"("n_head": 0)"), "dstrain.model.n_embd", "none"},
      {model(R"("n_embd": 0, "n_head": 5)"), "dstrain.model.n_head", "honoured"},
      {R"({"gradient_accumulation_steps": 2147483647, "train_micro_batch_size_per_gpu": 1})",
       "gradient_accumulation_steps",
       "error: 2147483647 micro-batches a step through 12 layers are more than the 262144 passes "
       "through a layer that a plan can hold: at most 21845 micro-batches; use a larger "
       "train_micro_batch_size_per_gpu, or a smaller train_batch_size"},
      {ours(R"("eval_batches": 20)"), "dstrain.eval_batches",
       "refused: a validation is counted in samples, so that it does not depend on the number of "
       "ranks: give dstrain.eval_samples"},
      {ours(R"("weight_decay_exclude": "*.bias")"), "dstrain.weight_decay_exclude",
       "error: expected a list of strings, found \"*.bias\""},
      {ours(R"("reduce": "never")"), "dstrain.reduce",
       "error: expected one of \"boundary\", \"micro_batch\", found \"never\""},
      {ours(R"("recompute": "all")"), "dstrain.recompute",
       "error: expected \"none\", \"selective\" or an integer of at least 0, found \"all\""},
      {ours(R"("recompute": 1.5)"), "dstrain.recompute",
       "error: expected \"none\", \"selective\" or an integer of at least 0, found 1.5"},
      {ours(R"("recompute": "2")"), "dstrain.recompute",
       "error: expected \"none\", \"selective\" or an integer of at least 0, found \"2\": write 2 "
       "without quotes"},
      {ours(R"("step": 5)"), "dstrain.step", "unknown: unknown key (did you mean dstrain.steps?)"},
      {model(R"("n_layer": 2048, "n_embd": 2147483640)"), "dstrain.model",
       "error: about 1.1e+23 parameters are more than can be counted"},
      {model(R"("block_size": 2147483647, "vocab_size": 2147483647)"), "dstrain.model",
       "error: about 9.2e+18 activations of a micro-batch are more than can be counted"},
      {R"({"train_micro_batch_size_per_gpu": 2147483647, "dstrain": {"steps": 9007199254740992}})",
       "dstrain.steps",
       "error: 9007199254740992 steps of 2147483647 samples are more than can be counted"},
  }));
  INFO(text);
  CHECK(verdict(ask(text, {}, 1).check(), key) == expected);
}

TEST_CASE("run: an integer beyond 64 bits names its key") {
  CHECK(ask("{\"train_batch_size\": 1000000000000000000000000000000}").error() ==
        "c.json:1:2: train_batch_size: expected an integer from 1 to 2147483647, found 1e+30");
  CHECK(ask("{}", {"train_batch_size=9223372036854775808"}).error() ==
        "--set: train_batch_size: expected an integer from 1 to 2147483647, found "
        "9223372036854775808");
  CHECK(ask(trains_with("\"gradient_clipping\": 1000000000000000000000000000000"))
            .job()
            .gradient_clipping == 1e30);
}

TEST_CASE("run: a micro-batch of more rows than a product can have names the largest") {
  const std::vector<std::string> most = {"dstrain.model.block_size=4096", "dstrain.model.n_layer=1",
                                         "dstrain.model.n_embd=12",
                                         "train_micro_batch_size_per_gpu=524287"};
  CHECK(ask("{}", most).error() == "no error");
  std::vector<std::string> more = most;
  more.back() = "train_micro_batch_size_per_gpu=524288";
  CHECK(ask("{}", more).error() ==
        "--set: train_micro_batch_size_per_gpu: 524288 samples of 4096 tokens are more than the "
        "2147483647 rows that a product can have: use at most 524287");
}

TEST_CASE("run: a size that follows from another key is that key's error") {
  CHECK(
      ask(R"({"train_batch_size": 2147483647})").error() ==
      "c.json:1:2: train_batch_size: a train_micro_batch_size_per_gpu of 2147483647 follows from "
      "it: 2147483647 samples of 2048 tokens are more than the 2147483647 rows that a product can "
      "have: use a train_micro_batch_size_per_gpu of at most 1048575");
  CHECK(
      ask(R"({"train_batch_size": 1048575})", {"dstrain.model.vocab_size=100000000"}).error() ==
      "c.json:1:2: train_batch_size: about 2.2e+17 activations of a micro-batch are more than can "
      "be counted");
  CHECK(ask("{}", {"dstrain.model.block_size=2147483647", "dstrain.model.n_embd=12"}).error() ==
        "--set: dstrain.model.block_size: 8 samples of 2147483647 tokens are more than the "
        "2147483647 rows that a product can have: use a train_micro_batch_size_per_gpu of at most "
        "1");
  CHECK(ask(R"({"train_micro_batch_size_per_gpu": 1, "train_batch_size": 1073741824})").error() ==
        "c.json:1:39: train_batch_size: 1073741824 micro-batches a step through 12 layers are more "
        "than the 262144 passes through a layer that a plan can hold: at most 21845 micro-batches; "
        "use a larger train_micro_batch_size_per_gpu, or a smaller train_batch_size");
  CHECK(
      ask(R"({"gradient_accumulation_steps": 1073741824})").error() ==
      "c.json:1:2: gradient_accumulation_steps: 1073741824 micro-batches a step through 12 layers "
      "are more than the 262144 passes through a layer that a plan can hold: at most 21845 "
      "micro-batches; use a larger train_micro_batch_size_per_gpu, or a smaller "
      "train_batch_size");
}

TEST_CASE("run: more samples than can be counted are an error of a key that is given") {
  const std::string batch = R"({"train_micro_batch_size_per_gpu": 2147483647,
 "gradient_accumulation_steps": 262144})";
  const std::vector<std::string> model = {"dstrain.model.type=benchmark", "dstrain.model.n_layer=1",
                                          "dstrain.model.in_size=1", "dstrain.model.hidden_size=1",
                                          "dstrain.model.out_size=1"};
  CHECK(ask(batch, model, 64).error() ==
        "c.json:1:2: train_micro_batch_size_per_gpu: 1000 steps (dstrain.steps, by default) of "
        "36028797002186752 samples are more than can be counted");
  std::vector<std::string> with_steps = model;
  with_steps.emplace_back("dstrain.steps=9007199254740992");
  CHECK(ask(batch, with_steps, 1).error() ==
        "--set: dstrain.steps: 9007199254740992 steps of 562949953159168 samples are more than can "
        "be counted");
}

TEST_CASE("run: the CPU replays no graph") {
  Ask a = ask(trains_with(R"("dstrain": {"cuda_graph": "on"})"));
  const std::string needs = "honoured: needs a GPU: a run on the CPU stops at it";
  CHECK(verdict(a.check(), "dstrain.cuda_graph") == needs);
  a.request.device = "cuda";
  CHECK(verdict(a.check(), "dstrain.cuda_graph") == needs);
  a.request.device = "cpu";
  CHECK(verdict(a.check(), "dstrain.cuda_graph") ==
        "error: the CPU has no graphs: use \"auto\" or --device cuda");
}

TEST_CASE("run: GPUs add in rank order unless they are many, or the file says something else") {
  const auto on = [](int64_t ranks, const std::string& file) {
    Ask a = ask(file);
    a.request.ranks = ranks;
    return a.job().rank_order_sums;
  };
  CHECK(on(1, trains_with("")));
  CHECK(on(8, trains_with("")));
  CHECK_FALSE(on(9, trains_with("")));
  CHECK(on(16, ours(R"("deterministic_collectives": true)")));
  CHECK_FALSE(on(2, ours(R"("deterministic_collectives": false)")));
  CHECK_FALSE(on(16, ours(R"("deterministic_collectives": "auto")")));
}

TEST_CASE("run: recompute has two keys and an option, which has the last word") {
  constexpr RecomputeConfig none{}, two{RecomputeMode::interval, 2},
      selective{RecomputeMode::selective, 0};
  const std::string interval = R"("pipeline": {"activation_checkpoint_interval": 2})";
  CHECK(ask(trains_with("")).job().recompute == none);
  CHECK(ask(ours(R"("recompute": "none")")).job().recompute == none);
  CHECK(ask(ours(R"("recompute": 0)")).job().recompute == none);
  CHECK(ask(ours(R"("recompute": 2)")).job().recompute == two);
  CHECK(ask(ours(R"("recompute": "selective")")).job().recompute == selective);
  CHECK(ask(trains_with(interval)).job().recompute == two);
  CHECK(ask(trains_with(interval), {"dstrain.recompute=2"}).job().recompute == two);
  CHECK(ask(trains_with(R"("pipeline": {"activation_checkpoint_interval": 0})"),
            {"dstrain.recompute=selective"})
            .job()
            .recompute == selective);
  for (const std::string own : {"selective", "none", "3"})
    CHECK_THAT(ask(trains_with(interval), {"dstrain.recompute=" + own}).error(),
               Catch::EndsWith(" is not what pipeline.activation_checkpoint_interval 2 asks for: "
                               "keep one of the two"));

  const std::string file =
      GENERATE_COPY(trains_with(""), trains_with(interval), ours(R"("recompute": "selective")"));
  Ask a = ask(file);
  a.request.recompute = "2";
  CHECK(a.job().recompute == two);
  CHECK(setting(a.load(), "dstrain.recompute").origin == "--activation_checkpoint_interval");
  a.request.recompute = "selective";
  CHECK(a.job().recompute == selective);
  a.request.recompute = "0";
  CHECK(a.job().recompute == none);
}

TEST_CASE("run: epochs and steps together are an error; epochs alone leave the steps open") {
  Ask a = ask(ours(R"("steps": 7)"));
  a.request.epochs = 2;
  CHECK_THAT(a.error(), Catch::Contains("dstrain.steps: 7 and --epochs 2 both say"));
  a.text = trains_with("");
  CHECK(a.job().steps == 1);
}

TEST_CASE(
    "run: the section aio has DeepSpeed's defaults but a deeper queue, and every key of it reaches "
    "the job") {
  const Job job = ask(trains_with("")).job();
  CHECK(job.aio == AioConfig{1'048'576, 128, 1, false, true});
  CHECK(
      ask(trains_with(R"("aio": {"block_size": 262144, "queue_depth": 32, "intra_op_parallelism": 4,
                                   "single_submit": true, "overlap_events": false})"))
          .job()
          .aio == AioConfig{262'144, 32, 4, true, false});
}
