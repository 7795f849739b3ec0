// Ranks of one machine: the program starts them itself, as forks.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

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
