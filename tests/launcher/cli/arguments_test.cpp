#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "launcher/cli/parse_arguments.h"
#include "models/registry.h"
#include "runtime/core/error.h"
#include "tests/launcher/cli/parsed_line.h"

namespace dstrain {
namespace {

using test::error_of;
using test::parse;

// The commands, as an error lists them.
constexpr const char* kAllCommands =
    "train, init, plan, verify, check, estimate, generate, chat, eval, teach, export, import, "
    "tokenize, report, compare, watch, models, hosts, doctor, bench-io or help";

TEST_CASE("train is the default command and knows every option of the contract") {
  for (const std::string prefix : {"", "train "}) {
    const auto a = std::get<TrainArguments>(
        parse(prefix +
              "--num_gpus 4 --config c.json --device cpu --model gptlite --data d.txt --steps 20 "
              "--seed 7 --output out --save_interval 5 --resume old "
              "--activation_checkpoint_interval selective --pipeline_num_stages 2 "
              "--pipeline_schedule gpipe --tensor_parallel_size 1 --sequence_parallel_size 2 "
              "--overwrite --resume_with_changes --set a.b=1 --set c={} --ignore amp --ignore "
              "fp16.opt_level"));
    const ConfigRequest& r = a.request;
    CHECK(r.path == "c.json");
    CHECK(r.ranks == 4);
    CHECK(r.device == "cpu");
    CHECK(r.model == "gptlite");
    CHECK(r.data == "d.txt");
    CHECK(r.steps == 20);
    CHECK(r.seed == 7);
    CHECK(r.output == "out");
    CHECK(r.save_interval == 5);
    CHECK(r.recompute == "selective");
    CHECK(r.resume == "old");
    CHECK(r.pipeline_stages == 2);
    CHECK(r.pipeline_schedule == "gpipe");
    CHECK(r.tensor_parallel == 1);
    CHECK(r.sequence_parallel == 2);
    CHECK((r.overwrite && r.resume_with_changes));
    CHECK(r.sets == std::vector<std::string>{"a.b=1", "c={}"});
    CHECK(r.ignored == std::vector<std::string>{"amp", "fp16.opt_level"});
    CHECK(r.need_data);
  }
}

TEST_CASE("verify takes a configuration, steps and the name of a fault") {
  const auto a = std::get<VerifyArguments>(
      parse("verify --config c --num_gpus 4 --steps 6 --deep --json --seed_fault flipped_bit "
            "--data d.txt --set a.b=1"));
  CHECK(a.request.path == "c");
  CHECK(a.request.ranks == 4);
  CHECK(a.request.steps == 6);
  CHECK(a.request.data == "d.txt");
  CHECK_FALSE(a.request.need_data);
  CHECK((a.deep && a.json));
  CHECK(a.seed_fault == "flipped_bit");
  CHECK(error_of("verify").starts_with("dstrain verify needs --config FILE"));
  CHECK(error_of("verify --config c --steps 1") ==
        "--steps: dstrain verify takes two steps or more, got 1");
  CHECK(error_of("verify --config c --seed_fault flip")
            .starts_with("--seed_fault: there is no fault 'flip': expected one of "));
}

TEST_CASE("a run begins with the weights of a file or of a checkpoint") {
  CHECK(std::get<TrainArguments>(parse("--config c --init_weights w.safetensors"))
            .request.init_weights == "w.safetensors");
  for (const std::string command : {"", "train ", "doctor "})
    CHECK(error_of(command + "--config c --init_weights w --resume out") ==
          "--resume out takes the weights of its checkpoint, and --init_weights w names others: "
          "leave out --init_weights to go on with the run, or --resume to begin one from w");
}

TEST_CASE("doctor takes every option of a run, and --json") {
  const auto a =
      std::get<DoctorArguments>(parse("doctor --json --config c.json --num_gpus 2 --output out"));
  CHECK(a.json);
  CHECK(a.request.path == "c.json");
  CHECK(a.request.output == "out");
  CHECK(a.request.need_data);
  CHECK(a.launch.hosts.slots_each == 2);
  CHECK(a.words.size() == 7);
  const auto without = std::get<DoctorArguments>(parse("doctor --output out"));
  CHECK_FALSE(without.json);
  CHECK(without.words.empty());
}

TEST_CASE("what is not given is absent") {
  const auto r = std::get<TrainArguments>(parse("--config c.json")).request;
  CHECK_FALSE(r.ranks.has_value());
  CHECK_FALSE(r.steps.has_value());
  CHECK_FALSE(r.output.has_value());
  CHECK(r.sets.empty());
  CHECK_FALSE((r.overwrite || r.resume_with_changes));
}

TEST_CASE("DeepSpeed's spellings work") {
  const auto r =
      std::get<TrainArguments>(parse("--num_gpus=2 --deepspeed_config=c.json --steps=0")).request;
  CHECK(r.path == "c.json");
  CHECK(r.ranks == 2);
  CHECK(r.steps == 0);
}

TEST_CASE("a --set value may hold blanks, commas, dashes and equal signs") {
  const auto a = std::get<TrainArguments>(parse_arguments(
      {"--config", "c.json", "--set", "a=[1, 2]", "--set", "b=-x=y"}, model_registry()));
  CHECK(a.request.sets == std::vector<std::string>{"a=[1, 2]", "b=-x=y"});
}

TEST_CASE("export takes a run and a format") {
  const auto a = std::get<ExportArguments>(
      parse("export runs/a --format hf --output e --dtype bfloat16 --overwrite"));
  CHECK(a.run == "runs/a");
  CHECK(a.hugging_face);
  CHECK(a.output == "e");
  CHECK(a.dtype == DType::bf16);
  CHECK(a.overwrite);
  const auto b = std::get<ExportArguments>(parse("export --format safetensors r"));
  CHECK_FALSE(b.hugging_face);
  CHECK_FALSE(b.dtype.has_value());
  CHECK(error_of("export --format hf") == "dstrain export needs RUN (see dstrain export --help)");
  CHECK(error_of("export r").starts_with("dstrain export needs --format hf|safetensors"));
  CHECK(error_of("export r --format onnx") ==
        "--format: expected hf, safetensors, peft or gguf, got 'onnx'");
  CHECK(error_of("export r --format hf --dtype int8") ==
        "--dtype: expected fp32, bf16, fp16 or q8_0, got 'int8'");
  const auto c = std::get<ExportArguments>(parse("export r --format gguf --dtype q8_0"));
  CHECK((c.gguf && c.q8_0 && !c.dtype && !c.hugging_face));
  CHECK(std::get<ExportArguments>(parse("export r --format gguf --dtype f16")).dtype == DType::f16);
  CHECK_THAT(error_of("export r --format hf --dtype q8_0"), Catch::Contains("--format gguf has"));
  CHECK(error_of("export r s --format hf") == "dstrain export takes one RUN, got 'r' and 's'");
}

TEST_CASE("eval measures a run or a folder") {
  const auto a = std::get<EvalArguments>(parse("eval --model m --data d --seq_len 9"));
  CHECK(a.model == "m");
  CHECK(a.seq_len == 9);
  CHECK(error_of("eval --data d").starts_with("dstrain eval needs --run DIR or --model DIR"));
  CHECK(error_of("eval --run r --model m --data d") ==
        "dstrain eval takes one of --run DIR and --model DIR");
  CHECK(error_of("eval --run r --data d --seq_len 0") ==
        "--seq_len: expected an integer from 1 up, got '0'");
  CHECK(a.ignored.empty());
  CHECK(std::get<EvalArguments>(parse("eval --model m --data d --ignore a.b --ignore c")).ignored ==
        std::vector<std::string>{"a.b", "c"});
  CHECK(error_of("eval --run r --data d --ignore a.b")
            .starts_with("dstrain eval: --ignore is for a key of config.json"));
}

TEST_CASE("plan and check") {
  const auto plan = std::get<PlanArguments>(
      parse("plan --config c.json --num_gpus 8 --rank 3 --json --set dstrain.model.vocab_size=65"));
  CHECK(std::get<PlanArguments>(parse("plan --config c.json --activation_checkpoint_interval 2"))
            .request.recompute == "2");
  CHECK(plan.request.ranks == 8);
  CHECK(plan.rank == 3);
  CHECK(plan.json);
  CHECK_FALSE(plan.request.need_data);
  const auto check = std::get<CheckArguments>(parse("check --config c.json"));
  CHECK_FALSE(check.json);
  CHECK_FALSE(check.all);
  CHECK(std::get<CheckArguments>(parse("check --config c.json --all")).all);
  CHECK_FALSE(check.request.ranks.has_value());
}

TEST_CASE("--timeline of plan has a file, or no value") {
  CHECK_FALSE(std::get<PlanArguments>(parse("plan --config c")).timeline.has_value());
  for (const char* line : {"plan --config c --timeline", "plan --timeline --config c"}) {
    const auto plan = std::get<PlanArguments>(parse(line));
    CHECK(plan.timeline == "");
    CHECK(plan.request.path == "c");
  }
  for (const char* line :
       {"plan --config c --timeline a/b.svg", "plan --timeline=a/b.svg --config c"})
    CHECK(std::get<PlanArguments>(parse(line)).timeline == "a/b.svg");
}

TEST_CASE("estimate") {
  const auto one = std::get<EstimateArguments>(parse("estimate --config c.json --num_gpus 8"));
  CHECK(one.request.ranks == 8);
  CHECK(one.nodes == 1);
  CHECK_FALSE(one.request.need_data);
  const auto two = std::get<EstimateArguments>(parse("estimate --config c.json --num_nodes 2"));
  CHECK_FALSE(two.request.ranks.has_value());
  CHECK(two.nodes == 2);
}

TEST_CASE("generate") {
  const auto a = std::get<GenerateArguments>(parse_arguments(
      {"generate", "--run", "r", "--prompt", "To be", "--tokens", "9", "--temperature", "0.5",
       "--top_k", "3", "--top_p", "0.9", "--seed", "18446744073709551615"},
      model_registry()));
  CHECK(a.run_dir == "r");
  CHECK(a.prompt == "To be");
  CHECK_FALSE(a.prompt_ids.has_value());
  CHECK(a.tokens == 9);
  CHECK(a.sampling.temperature == 0.5);
  CHECK(a.sampling.top_k == 3);
  CHECK(a.sampling.top_p == 0.9);
  CHECK(a.sampling.seed == ~uint64_t{0});
  const auto b =
      std::get<GenerateArguments>(parse("generate --run r --prompt_ids 1,2,30 --tokens 1"));
  CHECK(b.prompt_ids == std::vector<int32_t>{1, 2, 30});
  CHECK(b.sampling.temperature == 1.0);
  CHECK(b.sampling.top_p == 1.0);
  const auto plain = std::get<GenerateArguments>(parse("generate --run r"));
  CHECK(plain.tokens == 200);
  CHECK_FALSE(plain.prompt);
  CHECK_FALSE(plain.prompt_ids);
  CHECK((plain.samples == 1 && plain.stops.empty() && plain.sampling.min_p == 0));
  const auto more = std::get<GenerateArguments>(
      parse("generate --model m --prompts p.txt --samples 3 --stop a --stop b --min_p 0.1 "
            "--repetition_penalty 1.3"));
  CHECK((more.prompts == "p.txt" && more.samples == 3 && more.sampling.min_p == 0.1));
  CHECK((more.stops == std::vector<std::string>{"a", "b"} &&
         more.sampling.repetition_penalty == 1.3));
  CHECK(error_of("generate --run r --prompt a --prompts f") ==
        "dstrain generate takes one of --prompt TEXT, --prompt_ids 1,2,3 and --prompts FILE");
  CHECK(error_of("generate --run r --prompt a --temperature 0 --top_p 0.5")
            .starts_with("dstrain generate: --top_p says what to draw from"));
  CHECK(error_of("generate --run r --prompt a --temperature 0 --samples 2")
            .starts_with("dstrain generate: --samples 2 are one text 2 times"));
  CHECK(error_of("generate --run r --samples 0") ==
        "--samples: expected an integer from 1 to 100000, got '0'");
  CHECK(error_of("generate --run r --min_p 2") ==
        "--min_p: expected a number from 0 to 1, got '2'");
  CHECK(error_of("generate --run r --repetition_penalty 0")
            .starts_with("--repetition_penalty: expected a number above 0"));
}

TEST_CASE("what begins like an option is a value where it cannot be one") {
  const auto a =
      std::get<TrainArguments>(parse_arguments({"--config", "c", "--launcher_args", "--mca x y",
                                                "--resume=--steps", "--output", "--strange"},
                                               model_registry()));
  CHECK(a.launch.launcher_args == std::vector<std::string>{"--mca", "x", "y"});
  CHECK(a.request.resume == "--steps");
  CHECK(a.request.output == "--strange");
}

TEST_CASE("bench-io takes directories before, between and behind its options") {
  const auto plain = std::get<BenchIoArguments>(parse("bench-io /nvme"));
  CHECK(plain.directories == std::vector<std::string>{"/nvme"});
  CHECK(plain.bytes == 1'000'000'000);
  CHECK_FALSE(plain.block_sizes);
  CHECK_FALSE(plain.json);
  const auto all = std::get<BenchIoArguments>(
      parse("bench-io a --size 2GiB b --block_size 8192,4096 --queue_depth 4 --seconds 0.5 "
            "--intra_op_parallelism 1,2 --config c.json --parameters 7e9 --json c"));
  CHECK(all.directories == std::vector<std::string>{"a", "b", "c"});
  CHECK(all.bytes == int64_t{2} << 30);
  CHECK(all.block_sizes == std::vector<int64_t>{4096, 8192});
  CHECK(all.queue_depths == std::vector<int64_t>{4});
  CHECK(all.threads == std::vector<int64_t>{1, 2});
  CHECK(all.seconds == 0.5);
  CHECK(all.parameters == 7e9);
  CHECK(all.request.path == "c.json");
  CHECK(all.json);
  for (const auto& [word, bytes] : std::vector<std::pair<std::string, int64_t>>{
           {"1234", 1234}, {"5kB", 5000}, {"5KB", 5000}, {"1.5MB", 1'500'000}, {"3MiB", 3 << 20}})
    CHECK(std::get<BenchIoArguments>(parse("bench-io a --size " + word)).bytes == bytes);
}

TEST_CASE("tokenize takes several files, together or one after the other") {
  const auto a = std::get<TokenizeArguments>(
      parse("tokenize --data a.txt b.jsonl --model m --data c --no_eos --output o.bin"));
  CHECK(a.model == "m");
  CHECK(a.files == std::vector<std::string>{"a.txt", "b.jsonl", "c"});
  CHECK(a.output == "o.bin");
  CHECK(a.no_eos);
}

TEST_CASE("every wrong command line is one line that says what to do") {
  const auto [line, message] = GENERATE(table<std::string, std::string>({
      {"", "dstrain train needs --config FILE, or --resume RUN (see dstrain train --help)"},
      {"plan", "dstrain plan needs --config FILE (see dstrain plan --help)"},
      {"estimate", "dstrain estimate needs --config FILE (see dstrain estimate --help)"},
      {"estimate --config c --num_nodes 0",
       "--num_nodes: expected an integer from 1 to 65536, got '0'"},
      {"--config",
       "--config: the value is missing, expected --config FILE: the DeepSpeed configuration"},
      {"--config c --config d", "--config is given 2 times"},
      {"--config=",
       "--config: the value is missing, expected --config FILE: the DeepSpeed configuration"},
      {"--resume",
       "--resume: the value is missing, expected --resume DIR: continue the run in DIR from its "
       "newest checkpoint, as it was configured unless --config says otherwise"},
      {"generate --run r --tokens 1 --prompt",
       "--prompt: the value is missing, expected --prompt TEXT: the text to continue"},
      {"--config c --stesp 3", "unknown option '--stesp'; did you mean --steps?"},
      {"--config c --num-gpus=3", "unknown option '--num-gpus=3'; did you mean --num_gpus?"},
      {"--config c --lr 3", "unknown option '--lr': say it with --set optimizer.params.lr=3"},
      {"--config c --batch_size=8",
       "unknown option '--batch_size=8': say it with --set train_batch_size=8"},
      {"--config c --zero_stage 3",
       "unknown option '--zero_stage': say it with --set zero_optimization.stage=3"},
      {"--config c --gradient_clipping 3",
       "unknown option '--gradient_clipping': say it with --set gradient_clipping=3"},
      {"--config c --max_steps 3", "unknown option '--max_steps': did you mean --steps?"},
      {"--config c --bf16", "unknown option '--bf16': say it with --set bf16.enabled=true"},
      {"--deepspeed --config c",
       "unknown option '--deepspeed': leave it out, --config names DeepSpeed's file"},
      {"--config c --local_rank=0",
       "unknown option '--local_rank=0': leave it out, dstrain numbers its ranks itself"},
      {"--config c --zzzzzzzzzz", "unknown option '--zzzzzzzzzz' (see dstrain train --help)"},
      {"--config c -x", "unknown option '-x' (see dstrain train --help)"},
      {"--config c more",
       "unexpected argument 'more' (options start with --; see dstrain train --help)"},
      {"genrate --run r",
       fmt::format("unknown command 'genrate'; did you mean generate? ({})", kAllCommands)},
      {"fly", fmt::format("unknown command 'fly' ({})", kAllCommands)},
      {"import --output b", "dstrain import needs PATH (see dstrain import --help)"},
      {"import a", "dstrain import needs --output DIR (see dstrain import --help)"},
      {"import a b --output c", "dstrain import takes one PATH, got 'a' and 'b'"},
      {"tokenize --data a --output b",
       "dstrain tokenize needs --model DIR (see dstrain tokenize --help)"},
      {"tokenize --model m --output b",
       "dstrain tokenize needs --data FILE... (see dstrain tokenize --help)"},
      {"tokenize --model m --data a",
       "dstrain tokenize needs --output FILE.bin (see dstrain tokenize --help)"},
      {"bench-io", "dstrain bench-io needs PATH (see dstrain bench-io --help)"},
      {"bench-io a --size 1G",
       "--size: expected a number of bytes such as 1GB, 512MiB or 1048576, got '1G'"},
      {"bench-io a --size -1MB",
       "--size: expected a number of bytes such as 1GB, 512MiB or 1048576, got '-1MB'"},
      {"bench-io a --size 5000000000000000000000",
       "--size: expected a number of bytes such as 1GB, 512MiB or 1048576, at most "
       "9223372036854775807, got '5000000000000000000000'"},
      {"bench-io a --queue_depth 1,0",
       "--queue_depth: expected integers from 1 to 65536, with commas, got '0'"},
      {"bench-io a --block_size 4096,",
       "--block_size: expected integers from 1 to 1073741824, with commas, got ''"},
      {"bench-io a --jsn", "unknown option '--jsn'; did you mean --json?"},
      {"--config c --num_gpus 0", "--num_gpus: expected an integer from 1 to 65536, got '0'"},
      {"--config c --num_gpus two", "--num_gpus: expected an integer from 1 to 65536, got 'two'"},
      {"--config c --num_gpus 2.5", "--num_gpus: expected an integer from 1 to 65536, got '2.5'"},
      {"--config c --num_gpus=99999999999999999999",
       "--num_gpus: expected an integer from 1 to 65536, got '99999999999999999999'"},
      {"--config c --steps -1", "--steps: expected an integer from 0 up, got '-1'"},
      {"--config c --steps 9223372036854775808",
       "--steps: expected an integer from 0 to 9223372036854775807, got '9223372036854775808'"},
      {"--config c --set x", "--set: expected path.to.key=value, got 'x'"},
      {"--config c --set =1", "--set: expected path.to.key=value, got '=1'"},
      {"--config c --activation_checkpoint_interval all",
       "--activation_checkpoint_interval: expected an integer from 0 up, or selective, got 'all'"},
      {"plan --config c --rank -1", "--rank: expected an integer from 0 to 65535, got '-1'"},
      {"plan --config c --timeline c.json", "--timeline: expected FILE.svg, got 'c.json'"},
      {"plan --config c --timeline --timeline a.svg", "--timeline is given 2 times"},
      {"plan --config c --timeline --json", "dstrain plan takes one of --json and --timeline"},
      {"generate --prompt x --tokens 1",
       "dstrain generate needs --run DIR or --model DIR (see dstrain generate --help)"},
      {"generate --run r --tokens 1 --prompt x --prompt_ids 1",
       "dstrain generate takes one of --prompt TEXT, --prompt_ids 1,2,3 and --prompts FILE"},
      {"generate --run r --prompt x --top_p 0",
       "--top_p: expected a number above 0, up to 1, got '0'"},
      {"generate --run r --prompt x --top_p 1.5",
       "--top_p: expected a number above 0, up to 1, got '1.5'"},
      {"--config c --resume --steps 5",
       "--resume: the value is missing, the option --steps follows"},
      {"--config c --output --resume=r",
       "--output: the value is missing, the option --resume follows"},
      {"--config --num_gpus 2", "--config: the value is missing, the option --num_gpus follows"},
      {"--config c -H --force_multi", "-H: the value is missing, the option --force_multi follows"},
      {"generate --run --prompt x", "--run: the value is missing, the option --prompt follows"},
      {"--config c --set --ignore x", "--set: the value is missing, the option --ignore follows"},
      {"help fly", fmt::format("unknown command 'fly' ({})", kAllCommands)},
      {"help --man plan", "dstrain help takes one of COMMAND, --man and --completion"},
      {"help plan check", "dstrain help takes one of COMMAND, --man and --completion"},
      {"help --completion tcsh", "--completion: expected bash, zsh or fish, got 'tcsh'"},
      {"generate --run r --tokens 1 --prompt_ids 1,,2",
       "--prompt_ids: expected token ids separated by commas (1,2,3), got ''"},
      {"generate --run r --tokens 1 --prompt_ids 1,-2",
       "--prompt_ids: expected token ids separated by commas (1,2,3), got '-2'"},
      {"generate --run r --tokens 1 --prompt x --temperature nan",
       "--temperature: expected a number from 0 to 1000000, got 'nan'"},
      {"generate --run r --tokens 1 --prompt x --temperature -0.5",
       "--temperature: expected a number from 0 to 1000000, got '-0.5'"},
  }));
  CAPTURE(line);
  CHECK(error_of(line) == message);
}

}  // namespace
}  // namespace dstrain
