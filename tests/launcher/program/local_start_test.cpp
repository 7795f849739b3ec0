// Ranks of one machine: the program starts them itself, as forks.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "runtime/core/cpu.h"
#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a caller that ignores the ends of its children may start a run") {
  const RunFolder folder;
  const std::string more = GENERATE("", " --launcher openmpi");
  RunningProgram program = folder.start("/usr/bin/env --ignore-signal=CHLD " DSTRAIN_PROGRAM
                                        " --config c.json --steps 1 --num_gpus 2 " +
                                        folder.token() + more);
  CHECK(program.wait() == 0);
  CHECK(folder.nothing_left());
}

TEST_CASE("the weights are those of a run under mpirun, to the bit") {
  const std::string options =
      GENERATE("--num_gpus 2", "--num_gpus 4 --set zero_optimization.stage=3");
  std::string weights[2];
  for (const bool mpirun : {false, true}) {
    const RunFolder folder;
    RunningProgram program = folder.train(options + (mpirun ? " --launcher openmpi" : ""));
    CHECK(program.wait() == 0);
    CAPTURE(program.text());
    CHECK(program.wrote(mpirun ? "launcher openmpi: " : "launcher local: "));
    CHECK(program.wrote("step=4 "));
    CHECK(folder.nothing_left());
    weights[mpirun ? 1 : 0] = folder.read("out/model.safetensors");
  }
  CHECK(!weights[0].empty());
  CHECK(weights[0] == weights[1]);
}

TEST_CASE(
    "a limited instruction set is that of the plan and of all kernels, however ranks are started") {
  std::string tokens;
  for (int i = 0; i < 4000; ++i) tokens += {static_cast<char>((i * i + i / 7) % 17), '\0'};
  std::string weights[2];
  for (const bool mpirun : {false, true}) {
    const RunFolder folder;
    folder.write("d.bin", tokens);
    folder.write("c.json", R"({
      "train_batch_size": 4, "train_micro_batch_size_per_gpu": 4,
      "fp16": {"enabled": true, "loss_scale": 1024},
      "pipeline": {"stages": 2, "schedule": "zb-v", "partition": "time"},
      "dstrain": {
        "model": {"n_layer": 2, "n_embd": 16, "n_head": 1, "block_size": 257, "vocab_size": 17, "dropout": 0},
        "data": {"path": "d.bin", "val_fraction": 0}, "eval_interval": 0, "steps": 1
      }
    })");
    RunningProgram program = folder.train(
        std::string("--device cpu --num_gpus 2") + (mpirun ? " --launcher openmpi" : ""),
        {{"DSTRAIN_MAX_ISA", "avx2"}, {"OMP_NUM_THREADS", "1"}});
    CHECK(program.wait() == 0);
    CAPTURE(program.text());
    weights[mpirun ? 1 : 0] = folder.read("out/model.safetensors");
  }
  CHECK(!weights[0].empty());
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("a user's settings of OpenMP's affinity leave the ranks all cores") {
  const RunFolder folder;
  RunningProgram program = folder.train(
      "--num_gpus 1",
      {{"OMP_PROC_BIND", "true"}, {"OMP_PLACES", "cores"}, {"GOMP_CPU_AFFINITY", "0"}});
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  CHECK(program.wrote("1 rank of " + std::to_string(usable_core_count()) + " thread"));
  CHECK(program.wrote("OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY have no effect"));
}

TEST_CASE("no MPI is needed") {
  const RunFolder folder;
  RunningProgram program = folder.train("--num_gpus 2", {{"PATH", folder.path("tmp")}});
  CHECK(program.wait() == 0);
  CHECK(program.wrote("step=4 "));
  CHECK(folder.nothing_left());
}

TEST_CASE("too few open files or processes are an error before the start that names the limit") {
  const RunFolder folder;
  fs::permissions(folder.root, fs::perms::all);
  const std::string run = DSTRAIN_PROGRAM " --config c.json --num_gpus 2 " + folder.token();
  RunningProgram files = folder.start("/bin/sh -c 'ulimit -n 20; exec " + run + "'");
  CHECK(files.wait() == 1);
  CHECK(only_error(files.text()).starts_with("a process may open 20 files here, and needs "));
  CHECK(files.wrote("(ulimit -n "));
  CHECK(lines_of(files.text()) == 1);
  // Another user, because the kernel does not hold root to the limit.
  const std::string user = ::getuid() == 0 ? "setpriv --reuid 54321 --clear-groups " : "";
  RunningProgram processes = folder.start("prlimit --nproc=4 " + user + run);
  CHECK(processes.wait() == 1);
  CAPTURE(processes.text());
  CHECK(only_error(processes.text()).starts_with("the run needs "));
  CHECK(processes.wrote("ulimit -u is 4, "));
  CHECK_FALSE(fs::exists(folder.root / "out"));
}

TEST_CASE("threads that read the data before the ranks are forked are not missed by them") {
  const RunFolder folder;
  std::string text;
  while (text.size() < 4'000'000) text += "the quick brown fox jumps over the lazy dog\n";
  folder.write("long.txt", text);
  RunningProgram program = folder.train("--num_gpus 2 --data long.txt", {{"OMP_NUM_THREADS", "2"}});
  CHECK(program.wait() == 0);
  CHECK(program.wrote("2 ranks of 2 threads"));
  CHECK(program.wrote("step=4 "));
}

TEST_CASE("a rank that is killed is named, and nothing is left") {
  const RunFolder folder;
  RunningProgram program = folder.train("--num_gpus 2 --steps 100000000");
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  REQUIRE(processes_with(folder.token()).size() ==
          4);  // the launching process, the starter, the ranks
  const std::vector<pid_t> ranks = ranks_of(program.pid());
  REQUIRE(ranks.size() == 2);
  ::kill(ranks.back(), SIGKILL);
  CHECK(program.wait() == 2);
  CHECK(std::regex_match(only_error(program.text()),
                         std::regex("rank [01] \\(pid " + std::to_string(ranks.back()) +
                                    "\\) was killed by signal 9 \\(Killed\\) at step \\d+.*")));
  CHECK(folder.nothing_left());
}

TEST_CASE("a signal lets the ranks finish, and one rank can be started again") {
  const RunFolder folder;
  SECTION("a signal") {
    RunningProgram program = folder.train("--num_gpus 2 --steps 100000000");
    REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
    ::kill(program.pid(), SIGTERM);
    CHECK(program.wait() == 143);
    CHECK_FALSE(program.wrote("dstrain: error"));
  }
  SECTION("one rank that can be started again") {
    RunningProgram program = folder.train("--max_restarts 1 --save_interval 2");
    CHECK(program.wait() == 0);
    CHECK(program.wrote("step=4 "));
  }
  CHECK(folder.nothing_left());
}

TEST_CASE("messages between ranks that mpirun did not start are refused, once") {
  const RunFolder folder;
  RunningProgram program = folder.train("--num_gpus 2", {{"DSTRAIN_COMM", "mpi"}});
  CHECK(program.wait() == 1);
  CHECK(
      only_error(program.text()) ==
      "DSTRAIN_COMM asks for ranks that exchange messages, and these were started without mpirun: "
      "add --launcher openmpi, or unset DSTRAIN_COMM");
  CHECK(folder.nothing_left());
}

TEST_CASE("the rank starter is no command for people") {
  const RunFolder folder;
  RunningProgram program = folder.start(std::string(DSTRAIN_PROGRAM) +
                                        " rank_starter 2 --config c.json " + folder.token());
  CHECK(program.wait() == 1);
  CHECK(only_error(program.text()) ==
        "rank_starter is a part of dstrain that it starts itself: use dstrain --num_gpus 2");
}

}  // namespace
}  // namespace dstrain
