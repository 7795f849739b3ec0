// What the options of a start do, seen from outside: files for ranks, the launcher's id, cores, silence.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <regex>

#include "runtime/core/cpu.h"
#include "tests/launcher/support/run_folder.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// The names of the files in a directory, without what they begin with up to '_', each with that.
std::map<std::string, std::string> logs_in(const fs::path& directory) {
  std::map<std::string, std::string> logs;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    logs[name.substr(name.find('_') + 1)] = name.substr(0, name.find('_'));
  }
  return logs;
}

TEST_CASE("each rank writes to a file of its own, the errors come here") {
  const auto ranks = GENERATE(1, 2);
  const RunFolder folder;
  const std::string options =
      "--enable_each_rank_log logs/deep --num_gpus " + std::to_string(ranks) + " ";
  SECTION("all that it says") {
    RunningProgram program = folder.train(options);
    CHECK(program.wait() == 0);
    CHECK_FALSE(program.wrote("step="));
    CHECK(program.wrote("each rank writes to " + folder.path("logs/deep/20")));
    const auto logs = logs_in(folder.root / "logs/deep");
    REQUIRE(logs.size() == static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto log = logs.find("rank" + std::to_string(rank) + ".log");
      REQUIRE(log != logs.end());
      CHECK(std::regex_match(log->second, std::regex("20[0-9]{12}")));
      CHECK(log->second == logs.begin()->second);
    }
    const std::string first = "logs/deep/" + logs.begin()->second + "_rank0.log";
    CHECK(folder.read(first).find("step=4 ") != std::string::npos);
  }
  SECTION("not the reason of its end") {
    RunningProgram program =
        folder.start("/bin/sh -c 'ulimit -f 4096; exec " DSTRAIN_PROGRAM " --config c.json " +
                     folder.token() + " --steps 1 --set dstrain.model.n_embd=256 " + options + "'");
    CHECK(program.wait() == 2);
    CHECK(only_error(program.text()).find("File too large") != std::string::npos);
  }
  SECTION("not where a file is in the place of the directory") {
    folder.write("logs", "");
    RunningProgram program =
        folder.train("--enable_each_rank_log logs --num_gpus " + std::to_string(ranks));
    CHECK(program.wait() == 1);
    CHECK(
        only_error(program.text()).starts_with("--enable_each_rank_log: logs is not a directory"));
  }
}

TEST_CASE("the launcher's id is in DeepSpeed's file while it lives") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  RunningProgram program =
      folder.train(std::string("--save_pid --steps 100000000 --num_gpus ") + ranks);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  const std::string id = std::to_string(program.pid());
  const std::string file = "/tmp/" + id + ".deepspeed";
  CHECK(program.wrote("launcher pid: " + id + "\n"));
  CHECK(folder.read(file) == id);
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 143);
  CHECK_FALSE(fs::exists(file));
}

TEST_CASE("filters choose the ranks of this machine, too") {
  const RunFolder folder;
  const auto hosts_of = [&](const std::string& filter) {
    RunningProgram program = folder.train(filter + " --dry_run");
    CHECK(program.wait() == 0);
    return program.text();
  };
  CHECK_THAT(hosts_of("--include localhost:0"), Catch::Contains("localhost  0      0"));
  SKIP_UNLESS(usable_core_count() >= 2, "localhost has a slot for each core, and here is one");
  CHECK_THAT(hosts_of("--include localhost:0,1"), Catch::Contains("localhost  0-1    0-1"));
  CHECK_THAT(hosts_of("--include localhost:1"), Catch::Contains("localhost  1      0"));
}

TEST_CASE("a quiet run says nothing, unless something is wrong") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  RunningProgram program = folder.train(std::string("-q --num_gpus ") + ranks);
  CHECK(program.wait() == 0);
  CHECK(program.text().empty());
  CHECK(lines_of(folder.read("out/metrics.jsonl")) == 6);
  RunningProgram wrong = folder.train(std::string("-q --data nowhere --num_gpus ") + ranks);
  CHECK(wrong.wait() == 1);
  CHECK(only_error(wrong.text()).find("nowhere") != std::string::npos);
}

TEST_CASE("ranks run on the cores that they are bound to") {
  const RunFolder folder;
  const std::string core = std::to_string(usable_cores().back());
  RunningProgram program = folder.train("--steps 100000000 --bind_core_list " + core);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  CHECK(program.wrote(" 1 rank of 1 thread,"));
  const std::string status = folder.read("/proc/" + std::to_string(program.pid()) + "/status");
  CHECK(status.find("\nCpus_allowed_list:\t" + core + "\n") != std::string::npos);
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 143);

  RunningProgram two = folder.train("--overwrite --num_gpus 2 --bind_core_list " + core);
  CHECK(two.wait() == 1);
  CHECK(only_error(two.text()) == "--bind_core_list: 1 core (" + core +
                                      ") for 2 ranks on a host: each rank needs one at least");
}

TEST_CASE("ranks that all get the signal, and get it twice, stop after their step") {
  const auto number = GENERATE(SIGUSR1, SIGTERM);
  const RunFolder folder;
  RunningProgram program =
      folder.start("mpirun --oversubscribe --bind-to none -np 2 " DSTRAIN_PROGRAM
                   " --config c.json --steps 100000000 " +
                       folder.token(),
                   {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  auto ranks = processes_with(folder.token());
  std::erase(ranks, program.pid());  // mpirun
  REQUIRE(ranks.size() == 2);
  for (const pid_t rank : ranks)
    for (int times = 0; times < 2; ++times) ::kill(rank, number);
  CHECK(program.wait() == 128 + number);
  CHECK_FALSE(program.wrote("dstrain: error"));
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  CHECK_FALSE(fs::is_empty(folder.root / "out/checkpoints"));
}

TEST_CASE("what needs a launching process is refused under a user's mpirun") {
  const RunFolder folder;
  RunningProgram program =
      folder.start("mpirun --oversubscribe --bind-to none -np 2 " DSTRAIN_PROGRAM
                   " --config c.json --save_pid " +
                       folder.token(),
                   {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  CHECK(program.wait() == 1);
  CHECK(only_error(program.text()) ==
        "--save_pid names a launching dstrain, and mpirun started the ranks: leave it out");
}

TEST_CASE(
    "a process that torchrun has started as one of several is refused, unless it is alone on "
    "purpose") {
  const RunFolder folder;
  const auto start = [&folder](const std::string& options, const Environment& environment) {
    RunningProgram program = folder.train("--overwrite " + options, environment);
    const int status = program.wait();
    return std::to_string(status) + " " + program.text();
  };
  const Environment second_of_two{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}};
  const std::string refused = start("", second_of_two);
  CHECK_THAT(refused, Catch::StartsWith("1 "));
  CHECK_THAT(only_error(refused),
             Catch::Contains("RANK=1 and WORLD_SIZE=2 say that torchrun, or a program like it, has "
                             "started this process as one of 2"));
  CHECK_THAT(refused, Catch::Contains("--launcher none lets this process train alone"));
  CHECK_FALSE(fs::exists(folder.root / "out"));
  CHECK_THAT(start("--launcher none", second_of_two), Catch::StartsWith("0 "));
  CHECK_THAT(start("", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}), Catch::StartsWith("0 "));
  CHECK_THAT(start("", {{"WORLD_SIZE", "2"}}), Catch::StartsWith("0 "));
  CHECK_THAT(start("--launcher none --num_gpus 2", {}),
             Catch::Contains("--launcher none trains on one rank, in this process, and --num_gpus "
                             "asks for others"));
}

TEST_CASE("a current directory that is gone is the user's error, under Open MPI too") {
  const RunFolder folder;
  fs::create_directory(folder.root / "gone");
  RunningProgram program = folder.start(
      "sh -c 'cd gone && rmdir ../gone && exec " DSTRAIN_PROGRAM " --launcher openmpi --config " +
      folder.path("c.json") + " --data " + folder.path("text.txt") + " " + folder.token() + "'");
  CHECK(program.wait() == 1);
  CHECK(only_error(program.text()) ==
        "the current directory cannot be told (it is gone): change to one that exists");
}

TEST_CASE("a stray variable of dstrain's own is named") {
  const std::string name = GENERATE("DSTRAIN_BOARD", "DSTRAIN_RUN");
  const RunFolder folder;
  RunningProgram program = folder.train("--num_gpus 2", {{name, "x"}});
  CHECK(program.wait() == 1);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(error.starts_with("the variable " + name + " is set, "));
  CHECK(error.ends_with("unset it"));
}

TEST_CASE("a configuration that only this process can read is refused where every host reads it") {
  const RunFolder folder;
  const std::string input = GENERATE("cat c.json | ", "<c.json ");
  CAPTURE(input);
  RunningProgram program =
      folder.start("sh -c '" + input + DSTRAIN_PROGRAM " --config /dev/stdin --launcher openmpi " +
                   folder.token() + "'");
  CHECK(program.wait() == 1);
  CHECK(only_error(program.text()) ==
        "--config /dev/stdin: expected a regular file, because every host reads it: save the "
        "configuration in one");
}

TEST_CASE("ports that a run without ssh cannot use are refused at once") {
  const auto [port, text] = GENERATE(table<std::string, std::string>(
      {{"1023", "expected 1024 to 65471"}, {"65535", "the last one is 65535"}}));
  const std::string rank = GENERATE("0", "1");
  CAPTURE(port, rank);
  const RunFolder folder;
  RunningProgram program = folder.train("--no_ssh --nnodes 2 --master_addr 127.0.0.1 --node_rank " +
                                        rank + " --master_port " + port);
  CHECK(program.wait(60) == 1);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(error.starts_with("--master_port " + port + ": "));
  CHECK(error.ends_with(text));
}

}  // namespace
}  // namespace dstrain
