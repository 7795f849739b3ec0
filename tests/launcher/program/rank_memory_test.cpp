// The memory that a start expects of its ranks, beside what they really have.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <regex>

#include "launcher/placement/system_numbers.h"
#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

// Returns the kilobytes after `key` in a file of /proc; 0 if it has none.
int64_t kilobytes(const std::filesystem::path& file, const std::string& key) {
  return system_number(file, key).value_or(0);
}

// Returns the bytes of memory of processes that share pages with each other: pages without a file, shared ones once, and
// the files of the process that has most of them.
double bytes_of(const std::vector<pid_t>& processes) {
  int64_t own = 0, program = 0;
  for (const pid_t process : processes) {
    const std::filesystem::path folder = "/proc/" + std::to_string(process);
    own += kilobytes(folder / "smaps_rollup", "Pss_Anon:") +
           kilobytes(folder / "smaps_rollup", "Pss_Shmem:");
    program = std::max(program, kilobytes(folder / "status", "RssFile:"));
  }
  return static_cast<double>(own + program) * 1024;
}

// Returns the bytes that a command says the ranks of a machine need; 0 if it does not say it.
double bytes_said(const std::string& text) {
  std::smatch found;
  const std::regex sum("on one machine the ranks need ([0-9.]+) ([kMG])B \\(");
  if (!std::regex_search(text, found, sum)) return 0;
  const double unit = found[2] == "k" ? 1e3 : found[2] == "M" ? 1e6 : 1e9;
  return std::stod(found[1]) * unit;
}

double planned(const RunFolder& folder, const std::string& command) {
  RunningProgram program = folder.start(DSTRAIN_PROGRAM " " + command);
  REQUIRE(program.wait() == 0);
  CAPTURE(program.text());
  return bytes_said(program.text());
}

TEST_CASE("ranks have no more memory than is said before their start, and a third of it at least") {
  const RunFolder folder;
  const std::string model = " --set dstrain.model.n_embd=128";
  for (const std::string& set : {std::string(), model}) {
    const double said = planned(folder, "plan --config c.json --num_gpus 4" + set);
    RunningProgram program = folder.train("--num_gpus 4 --steps 1000000 --overwrite" + set);
    REQUIRE(wait_until([&] { return program.wrote("step=2 "); }));
    std::vector<pid_t> processes = ranks_of(program.pid());
    REQUIRE(processes.size() == 4);
    processes.push_back(starter_of(program.pid()));
    const double real = bytes_of(processes);
    CAPTURE(set, said, real);
    CHECK(real > 0);
    CHECK(real < said);
    CHECK(said < 3 * real);
    ::kill(program.pid(), SIGINT);
    CHECK(program.wait() == 128 + SIGINT);
  }
}

TEST_CASE("128 small ranks are not refused for their memory") {
  const RunFolder folder;
  const std::string batch = " --set train_batch_size=128";
  const double said = planned(folder, "plan --config c.json --num_gpus 128" + batch);
  CHECK(said > 128 * 1e6);
  CHECK(said < 128 * 10e6);
  CHECK(planned(folder, "estimate --config c.json --num_gpus 128" + batch) ==
        Approx(said).epsilon(0.2));
  RunningProgram start = folder.train("--num_gpus 128 --dry_run" + batch);
  CAPTURE(start.text());
  CHECK(start.wait() == 0);
}

}  // namespace
}  // namespace dstrain
