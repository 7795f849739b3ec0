// Ranks that a user's own mpirun started: one that is stopped or killed is named, once, and everything ends.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

RunningProgram start_mpirun(const RunFolder& folder, int ranks, const std::string& comm) {
  return folder.start("mpirun --oversubscribe --bind-to none -np " + std::to_string(ranks) + " " +
                          DSTRAIN_PROGRAM + " --config c.json --steps 100000000 " + folder.token(),
                      {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                       {"OMP_NUM_THREADS", "1"},
                       {"DSTRAIN_COMM", comm}});
}

bool has_variable(const RunFolder& folder, pid_t pid, const std::string& variable) {
  const std::string all = folder.read("/proc/" + std::to_string(pid) + "/environ") + '\0';
  return all.find('\0' + variable + '\0') != std::string::npos || all.starts_with(variable + '\0');
}

pid_t pid_of_rank(const RunFolder& folder, int rank) {
  for (const pid_t pid : processes_with(folder.token()))
    if (has_variable(folder, pid, "OMPI_COMM_WORLD_RANK=" + std::to_string(rank))) return pid;
  return -1;
}

// The watchers of the hosts of this test's run.
std::vector<pid_t> watchers(const RunFolder& folder) {
  std::vector<pid_t> found;
  for (const pid_t pid : processes_with("host_watch"))
    if (has_variable(folder, pid, "TMPDIR=" + folder.path("tmp"))) found.push_back(pid);
  return found;
}

bool named(RunningProgram& program, const std::string& error) {
  return std::regex_match(only_error(program.text()), std::regex(error));
}

TEST_CASE(
    "ranks whose peer never begins end after dstrain.timeout_s, and say what they waited for") {
  const RunFolder folder;
  RunningProgram program = folder.start(
      std::string("mpirun --oversubscribe --bind-to none -np 1 ") + DSTRAIN_PROGRAM +
          " --config c.json --set dstrain.timeout_s=2 " + folder.token() + " : -np 1 sleep 1000",
      {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  CHECK(program.wait() == 2);
  CAPTURE(program.text());
  CHECK(named(
      program,
      "rank 0 has waited 2 s for the other ranks of mpirun: one is stopped, has not begun, or "
      "cannot be reached \\(dstrain.timeout_s\\)"));
}

TEST_CASE("a stopped rank of the user's own mpirun is named, and everything ends") {
  struct Case {
    int ranks, victim;
    std::string comm;
  };
  const auto c =
      GENERATE(Case{2, 0, "auto"}, Case{2, 1, "auto"}, Case{4, 2, "auto"}, Case{2, 1, "mpi"},
               Case{4, 0, "hosts:2"}, Case{4, 3, "hosts:2"}, Case{2, 1, "hosts:2"});
  CAPTURE(c.ranks, c.victim, c.comm);
  const RunFolder folder;
  RunningProgram program = start_mpirun(folder, c.ranks, c.comm);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  CHECK(watchers(folder).size() == (c.comm == "hosts:2" ? 2 : 1));
  const pid_t victim = pid_of_rank(folder, c.victim);
  REQUIRE(victim > 0);
  ::kill(victim, SIGSTOP);
  CHECK(program.wait() == 2);
  CAPTURE(program.text());
  CHECK(named(program, "rank " + std::to_string(c.victim) + " \\(pid " + std::to_string(victim) +
                           "( on .*)?\\) is stopped \\(as by SIGSTOP\\) at step .*"));
  CHECK(wait_until([&] { return processes_with(folder.token()).empty(); }));
  CHECK(wait_until([&] { return watchers(folder).empty(); }));
}

TEST_CASE("a killed rank of the user's own mpirun is one line of ours") {
  const auto comm = GENERATE("auto", "hosts:2");
  const auto rank = GENERATE(0, 1);
  const RunFolder folder;
  RunningProgram program = start_mpirun(folder, 2, comm);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  const pid_t victim = pid_of_rank(folder, rank);
  REQUIRE(victim > 0);
  ::kill(victim, SIGKILL);
  CHECK(program.wait() == 128 + SIGKILL);  // which mpirun decides
  CAPTURE(program.text());
  CHECK(named(program, "rank " + std::to_string(rank) + " \\(pid " + std::to_string(victim) +
                           "( on .*)?\\) (was killed by signal 9|ended unexpectedly).*"));
  CHECK(wait_until([&] { return watchers(folder).empty(); }));
}

TEST_CASE("watchers go with a run that ends well, and with one that is asked to stop") {
  const auto comm = GENERATE("auto", "hosts:2");
  const RunFolder folder;
  RunningProgram program = start_mpirun(folder, 2, comm);
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  for (const int rank : {0, 1}) ::kill(pid_of_rank(folder, rank), SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
  CHECK_FALSE(program.wrote("dstrain: error"));
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  CHECK(wait_until([&] { return watchers(folder).empty(); }));
}

TEST_CASE("a watcher is nothing to start by hand") {
  const RunFolder folder;
  RunningProgram program = folder.start(std::string(DSTRAIN_PROGRAM) + " host_watch");
  CHECK(program.wait() == 1);
  CHECK(only_error(program.text()).starts_with("host_watch is a part of dstrain"));
}

}  // namespace
}  // namespace dstrain
