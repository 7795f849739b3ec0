// The program itself, from the shell's side: files, exit statuses, what it says, what it leaves.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

TEST_CASE("a run writes what the contract names, on one rank and on two") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  RunningProgram program = folder.train(std::string("--num_gpus ") + ranks);
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  std::vector<json> steps, validations;
  for (std::string line; std::getline(lines, line);)
    (json::parse(line).contains("loss") ? steps : validations).push_back(json::parse(line));
  REQUIRE(steps.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(steps[static_cast<size_t>(i)]["step"] == i + 1);
  CHECK(validations.size() == 2);
  for (const char* name : {"model.safetensors", "vocab.json", "resolved_config.json"})
    CHECK(fs::exists(folder.root / "out" / name));
  for (const char* part : {"step=4", "loss=", "lr=", "grad_norm=", "samples/s=", "mem="})
    CHECK(program.wrote(part));
  CHECK(folder.nothing_left());
}

TEST_CASE("section comms_logger prints a line for each collective and a table at the end") {
  const RunFolder folder;
  RunningProgram program = folder.train(
      "--num_gpus 2 --set comms_logger.enabled=true --set comms_logger.verbose=true "
      "--set steps_per_print=4 --set zero_optimization.stage=1");
  CHECK(program.wait() == 0);
  CHECK(program.wrote("comm op: reduce_scatter | layer: head | time (ms): "));
  CHECK(program.wrote("collectives of rank 0, in 4 steps:"));
  CHECK(
      std::regex_search(program.text(), std::regex("\nall_gather +[0-9.]+ k?B +[0-9]+ +[0-9.]+ ")));
}

TEST_CASE("plan and a run warn of a tensor group on several hosts") {
  const RunFolder folder;
  const std::string warning = "the tensor group of ranks 0 to 1 is on 2 hosts";
  const std::string options = " --config c.json --tensor_parallel_size 2 --steps 1 ";
  for (const auto& [hosts, warns] : {std::pair{"hosts:2", true}, {"auto", false}}) {
    CAPTURE(hosts);
    const std::string planned = folder.output_of(
        DSTRAIN_PROGRAM + (" plan" + options) + "--num_gpus 2 2>&1", 0, {{"DSTRAIN_COMM", hosts}});
    CHECK((planned.find(warning) != std::string::npos) == warns);
    CHECK(planned.find("\nsent a step among 2 tensor ranks: ") != std::string::npos);
    RunningProgram program =
        folder.start("mpirun --oversubscribe --bind-to none -np 2 " + std::string(DSTRAIN_PROGRAM) +
                         options + "--output " + hosts,
                     {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                      {"OMP_NUM_THREADS", "1"},
                      {"DSTRAIN_COMM", hosts}});
    CHECK(program.wait() == 0);
    CAPTURE(program.text());
    CHECK(program.wrote(warning) == warns);
  }
}

TEST_CASE("without --output a run is found by its configuration's name") {
  const RunFolder folder;
  RunningProgram program =
      folder.start(std::string(DSTRAIN_PROGRAM) + " train --config c.json --steps 0");
  CHECK(program.wait() == 0);
  CHECK(fs::exists(folder.root / "runs/c/model.safetensors"));
}

struct Mistake {
  std::string options;
  std::string error;  // a regular expression
};

TEST_CASE("wrong input is one error and status 1, before anything is started") {
  const auto mistake = GENERATE(values<Mistake>({
      {"--stpes 3", "unknown option '--stpes'; did you mean --steps.*"},
      {"--data nowhere.txt", ".*nowhere\\.txt.*No such file.*"},
      {"--data empty.txt", ".*empty\\.txt.*"},
      {"--device cuda", "--device cuda: .*use --device cpu"},
      {"--init_weights text.txt", ".*text\\.txt.*safetensors.*"},
      {"--resume tmp", "--resume: there is no checkpoint in tmp.*"},
      {"--set dstrain.model.n_layer=2048 --set dstrain.model.n_embd=4096",
       "the run needs at least [0-9.]+ TB \\(2 ranks x .*this machine offers .*"},
      {"--set train_batch_size=3", ".*train_batch_size 3.*"},
      {"--set dstrain.model.vocab_size=3", "dstrain\\.model\\.vocab_size is 3.*"},
      {"--set dstrain.trace=nowhere/t.json",
       "dstrain\\.trace: .*nowhere/t\\.json.*No such file.*dstrain\\.trace=FILE.*"},
      {"--set dstrain.trace=/dev/null", "dstrain\\.trace: .*/dev/null: it is not a regular file.*"},
      {"--set 'dstrain.weight_decay_exclude=[\"z*\"]'",
       "--set: dstrain.*no weight .* like \"z\\*\".*"},
      {"--set dstrain.trace=tmp", "dstrain\\.trace tmp is a directory: name a file"},
  }));
  CAPTURE(mistake.options);
  const RunFolder folder;
  folder.write("empty.txt", "");
  RunningProgram program = folder.train("--num_gpus 2 " + mistake.options);
  CHECK(program.wait() == 1);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(std::regex_match(error, std::regex(mistake.error)));
  CHECK(lines_of(program.text()) == 1);
  CHECK(fs::is_empty(folder.root / "tmp"));
}

TEST_CASE("an output directory that cannot be is an error before the start") {
  const RunFolder folder;
  folder.write("file", "");
  RunningProgram program =
      folder.start(std::string(DSTRAIN_PROGRAM) + " --config c.json --output file/sub");
  CHECK(program.wait() == 1);
  CHECK(only_error(program.text()).starts_with("cannot make the output directory file/sub"));
}

TEST_CASE("a rank killed with -9 ends the run, by name") {
  const RunFolder folder;
  RunningProgram program = folder.train("--num_gpus 2 --steps 100000000");
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  const std::vector<pid_t> ranks = ranks_of(program.pid());
  REQUIRE(ranks.size() == 2);
  const pid_t rank = ranks.front();
  ::kill(rank, SIGKILL);
  CHECK(program.wait() == 2);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(std::regex_match(error, std::regex("rank [01] \\(pid " + std::to_string(rank) +
                                           "\\) was killed by signal 9 \\(Killed\\) at step .*")));
  CHECK(folder.nothing_left());
}

TEST_CASE("a signal ends a run after its step, with weights and checkpoint") {
  const auto [ranks, number, status] =
      GENERATE(table<std::string, int, int>({{"1", SIGINT, 130}, {"2", SIGTERM, 143}}));
  CAPTURE(ranks);
  const RunFolder folder;
  RunningProgram program = folder.train("--steps 100000000 --num_gpus " + ranks);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  ::kill(program.pid(), number);
  CHECK(program.wait() == status);
  CHECK(program.wrote("stopping after this step"));
  CHECK(program.text().find("error") == std::string::npos);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  CHECK_FALSE(fs::is_empty(folder.root / "out/checkpoints"));
  CHECK(folder.nothing_left());
}

TEST_CASE("a full disk while writing is one error and status 2") {
  const RunFolder folder;
  // A limit on file sizes (2 MB) refuses bytes as a full disk does; the weights are 3 MB.
  RunningProgram program = folder.start(
      "/bin/sh -c 'ulimit -f 4096; exec " DSTRAIN_PROGRAM " --config c.json " + folder.token() +
      " --steps 1 --set dstrain.model.n_embd=256 --set dstrain.save_last=true --set "
      "dstrain.save_required=true'");
  CHECK(program.wait() == 2);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(program.wrote("warning: the checkpoint of step 1, of "));
  CHECK(error.find("model.safetensors") != std::string::npos);
  CHECK(error.find("File too large") != std::string::npos);
  for (const auto& entry : fs::directory_iterator(folder.root / "out"))
    CHECK(entry.path().filename().string().find("model") == std::string::npos);
}

TEST_CASE("a run says first what it is and last where its results are, with a loss") {
  const RunFolder folder;
  const auto ranks = GENERATE("1", "2");
  RunningProgram program = folder.train(std::string("--steps 3 --num_gpus ") + ranks);
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
}

TEST_CASE("a run whose data is cut short says so") {
  const RunFolder folder;
  const auto ranks = GENERATE("1", "2");
  std::string text;
  while (text.size() < 50'000) text += folder.read("text.txt");
  folder.write("long.txt", text);
  RunningProgram program =
      folder.train(std::string("--steps 100000000 --data long.txt --num_gpus ") + ranks);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }, 30));
  fs::resize_file(folder.root / "long.txt", 0);
  CHECK(program.wait() == 2);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(error.find("long.txt was cut short while it was read") != std::string::npos);
  CHECK(folder.nothing_left());
}

TEST_CASE("at stage 3 a model trains that is larger than what a rank may hold") {
  // 14.2 million weights in 16 bits, of 18 bytes each with gradient and state: 255 MB.
  const std::string options =
      " --num_gpus 4 --steps 2 --set bf16.enabled=true --set dstrain.reduce=micro_batch"
      " --set dstrain.model.n_embd=384 --set dstrain.model.n_layer=8 --set dstrain.eval_interval=0"
      " --set dstrain.model.block_size=8 --set zero_optimization.stage3_max_reuse_distance=0"
      " --set zero_optimization.stage3_param_persistence_threshold=0";
  const RunFolder folder;
  // Kilobytes of private writable memory that each process may have; what peers read is not in it.
  const auto train = [&](int64_t limit, const std::string& stage) {
    return folder.start("/bin/sh -c 'ulimit -d " + std::to_string(limit) +
                            "; exec " DSTRAIN_PROGRAM " --config c.json " + folder.token() +
                            options + " --set zero_optimization.stage=" + stage + "'",
                        {{"OMP_NUM_THREADS", "1"}});
  };
  constexpr int64_t kLimit = 180'000;
  RunningProgram whole = train(kLimit, "0");
  CHECK(whole.wait() == 2);
  CHECK_FALSE(fs::exists(folder.root / "out/model.safetensors"));
  RunningProgram sharded = train(kLimit, "3");
  CHECK(sharded.wait() == 0);
  CAPTURE(sharded.text());
  const std::string steps = folder.read("out/metrics.jsonl");
  CHECK(lines_of(steps) == 3);  // and a validation
  CHECK(json::parse(steps.substr(0, steps.find('\n')))["peak_bytes"] < kLimit * 1024);
  CHECK(fs::file_size(folder.root / "out/model.safetensors") > 14'200'000 * 4);
}

TEST_CASE("under a user's mpirun the program is one rank of it") {
  const RunFolder folder;
  const Environment root = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  const std::string mpirun = "mpirun --oversubscribe --bind-to none -np 2 " DSTRAIN_PROGRAM " ";
  SECTION("and trains") {
    RunningProgram program =
        folder.start(mpirun + "--config c.json --num_gpus 2 " + folder.token(), root);
    CHECK(program.wait() == 0);
    CAPTURE(program.text());
    CHECK(lines_of(folder.read("out/metrics.jsonl")) == 6);
  }
  SECTION("and reports wrong input once") {
    RunningProgram program =
        folder.start(mpirun + "--config c.json --data nowhere.txt " + folder.token(), root);
    CHECK(program.wait() == 1);
    CHECK(only_error(program.text()).find("nowhere.txt") != std::string::npos);
  }
  SECTION("and refuses another number of ranks once") {
    RunningProgram program =
        folder.start(mpirun + "--config c.json --num_gpus 3 " + folder.token(), root);
    CHECK(program.wait() == 1);
    CHECK(only_error(program.text()) ==
          "--num_gpus is 3, but mpirun started 2 ranks: leave --num_gpus out");
  }
}

TEST_CASE("plan and check print to standard output, as text and as JSON") {
  const RunFolder folder;
  const std::string program = DSTRAIN_PROGRAM " ";
  RunningProgram plan =
      folder.start(program + "plan --config c.json --num_gpus 2 --rank 1 --json 2>err");
  CHECK(plan.wait() == 0);
  const json object = json::parse(plan.text());
  CHECK(object["ranks"] == 2);
  CHECK(object["rank"] == 1);
  int64_t sum = 0;
  for (const auto& [name, bytes] : object["memory"].items())
    if (name != "total") sum += bytes.get<int64_t>();
  CHECK(sum == object["memory"]["total"]);

  RunningProgram text = folder.start(program + "plan --config c.json 2>err");
  CHECK(text.wait() == 0);
  CHECK(text.wrote("rank 0 of 1"));

  RunningProgram check = folder.start(program + "check --config c.json --json 2>err");
  CHECK(check.wait() == 0);
  CHECK(json::parse(check.text()).is_array());
  CHECK(folder.read("err").empty());

  folder.write("bad.json", R"({"gradient_clipp1ng": 1})");
  RunningProgram bad = folder.start(program + "check --config bad.json 2>err");
  CHECK(bad.wait() == 1);
  CHECK(bad.wrote("gradient_clipping"));

  RunningProgram full = folder.start(program + "plan --config c.json >/dev/full");
  CHECK(full.wait() == 2);
  CHECK(only_error(full.text()) == "cannot write to standard output: No space left on device");
}

TEST_CASE("plan draws a step of a pipeline, as text and as a file") {
  const RunFolder folder;
  const std::string plan = DSTRAIN_PROGRAM
      " plan --config c.json --device cpu --num_gpus 4 --set dstrain.model.n_layer=4 ";
  const std::string stages = "--pipeline_num_stages 4 ";
  RunningProgram text = folder.start(plan + stages + "--timeline 2>err");
  CHECK(text.wait() == 0);
  CAPTURE(text.text());
  for (const char* part : {"an estimated step: 4 stages, 4 micro-batches\nbubble ",
                           " %, in flight 4 3 2 1\n", "F forward, B backward, . idle\n"})
    CHECK(text.wrote(part));
  for (const char* row : {"\nstage 0  F", "\nstage 1  .", "\nstage 2  .", "\nstage 3  ."})
    CHECK(text.wrote(row));
  RunningProgram file = folder.start(plan + stages + "--timeline step.svg 2>err");
  CHECK(file.wait() == 0);
  CHECK(file.wrote("the timeline of a step is in step.svg\n"));
  CHECK_FALSE(file.wrote("bubble"));
  CHECK(folder.read("step.svg").starts_with("<svg"));
  RunningProgram one = folder.start(plan + "--timeline one.svg 2>err");
  CHECK(one.wait() == 0);
  CHECK(one.wrote("one stage: nothing to draw\n"));
  CHECK_FALSE(fs::exists(folder.root / "one.svg"));
  RunningProgram nowhere = folder.start(plan + stages + "--timeline nowhere/step.svg");
  CHECK(nowhere.wait() == 2);
  CHECK(only_error(nowhere.text()).find("nowhere/step.svg") != std::string::npos);
}

TEST_CASE(
    "estimate prints DeepSpeed's tables and the plan's bytes, whatever ZeRO stage is configured") {
  const auto stage = GENERATE("0", "3");
  const RunFolder folder;
  RunningProgram estimate = folder.start(
      std::string(DSTRAIN_PROGRAM) + " estimate --config c.json --num_gpus 2 --num_nodes 2 --set " +
      "zero_optimization.stage=" + stage + " --set zero_optimization.offload_param.device=none");
  CHECK(estimate.wait() == 0);
  CAPTURE(estimate.text());
  for (const char* part :
       {"HW: Setup with 2 nodes, 2 GPUs per node.", "  per CPU  |  per GPU |   Options",
        "offload_param=cpu , offload_optimizer=cpu , zero_init=1", "plan of each of 4 ranks",
        "activations", "model states alone"})
    CHECK(estimate.wrote(part));
  CHECK_FALSE(estimate.wrote("not available"));
}

TEST_CASE("estimate shows every stage of a pipeline, and the memory of the largest") {
  const RunFolder folder;
  const std::string estimate =
      DSTRAIN_PROGRAM " estimate --config c.json --num_gpus 4 --set dstrain.model.n_layer=4 ";
  RunningProgram alone = folder.start(estimate + "2>err");
  RunningProgram stages = folder.start(estimate + "--set pipeline.stages=2 2>err");
  CHECK(alone.wait() == 0);
  CHECK(stages.wait() == 0);
  CAPTURE(stages.text());
  const auto deepspeed = [](const std::string& text) {
    return text.substr(0, text.find("dstrain's plan"));
  };
  CHECK(deepspeed(stages.text()) == deepspeed(alone.text()));
  CHECK_FALSE(alone.wrote("stage 0:"));
  CHECK(stages.wrote("  stage 0: embedding to blocks."));
  CHECK(stages.wrote("  stage 1: blocks."));
  CHECK(stages.wrote(" to head, "));
  CHECK(stages.wrote(", the most, as follows\n"));
}

TEST_CASE("estimate plans the stage without zenflow, and says so") {
  const RunFolder folder;
  RunningProgram estimate =
      folder.start(std::string(DSTRAIN_PROGRAM) +
                   " estimate --config c.json --num_gpus 2 --set "
                   "zero_optimization.stage=2 --set zero_optimization.zenflow={}");
  CHECK(estimate.wait() == 0);
  CAPTURE(estimate.text());
  CHECK(estimate.wrote("ZeRO stage 2 without zenflow, which dstrain does not have, f32"));
  RunningProgram wrong =
      folder.start(std::string(DSTRAIN_PROGRAM) +
                   " estimate --config c.json --num_gpus 2 --set "
                   "zero_optimization.zenflow={} --set tensor_parallel.autotp_size=3");
  CHECK(wrong.wait() == 1);
}

}  // namespace
}  // namespace dstrain
