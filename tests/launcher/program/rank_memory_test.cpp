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

// Returns bytes as the program prints them: "1.2 GB"; 0 if there are none at `from`.
double bytes_at(const std::string& text, size_t from) {
  std::smatch found;
  const std::string rest = text.substr(from);
  const std::regex bytes("([0-9.]+) ([kMGT]?)B");
  if (!std::regex_search(rest, found, bytes)) return 0;
  const std::string unit = found[2];
  return std::stod(found[1]) * (unit == "k"   ? 1e3
                                : unit == "M" ? 1e6
                                : unit == "G" ? 1e9
                                : unit == "T" ? 1e12
                                              : 1);
}

// What a run's memory_breakdown says after its first step.
struct Measured {
  double planned = 0, resident = 0;  // of the rank with most
};
Measured measured(const std::string& log) {
  const size_t resident = log.rfind("process: largest resident set");
  const size_t planned = log.rfind("device: total");
  REQUIRE((resident != std::string::npos && planned != std::string::npos));
  return {bytes_at(log, planned), bytes_at(log, resident)};
}

// Trains a step with memory_breakdown and compares what its ranks have had with what the plan says.
Measured check_step(const RunFolder& folder, const std::string& options, int seconds) {
  RunningProgram program =
      folder.train(options + " --steps 1 --overwrite --set memory_breakdown=true");
  const int status = program.wait(seconds);
  CAPTURE(options, program.text());
  REQUIRE(status == 0);
  const Measured memory = measured(program.text());
  CHECK(memory.planned > 0);
  // The plan's memory is all there after a step, and there is no more than it, the program and its libraries.
  CHECK(memory.resident > memory.planned);
  CHECK(memory.resident < memory.planned + 40e6);
  return memory;
}

const std::string kLong =
    " --set train_batch_size=1 --set dstrain.eval_interval=0 --set dstrain.model.n_layer=2"
    " --set dstrain.model.n_embd=64 --set dstrain.model.n_head=4";

TEST_CASE("a rank of a group that divides layers or samples has the memory that its plan says") {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 1200; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  folder.write("text.txt", text);
  const std::string model = kLong + " --set dstrain.model.block_size=4096";
  const Measured whole = check_step(folder, "--num_gpus 1" + model, 100);
  for (const char* layout : {"--tensor_parallel_size 2", "--sequence_parallel_size 2",
                             "--sequence_parallel_size 2 --set dstrain.mlp_chunks=4"}) {
    const Measured divided = check_step(folder, std::string("--num_gpus 2 ") + layout + model, 100);
    CHECK(divided.planned < 0.75 * whole.planned);
  }
}

TEST_CASE("a sample of 32768 tokens that fits no rank trains on two that divide it") {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 9000; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  folder.write("text.txt", text);
  const std::string model = kLong +
                            " --set dstrain.model.block_size=32768 --set dstrain.recompute=1"
                            " --set dstrain.loss_chunks=8 --set dstrain.mlp_chunks=8";
  const std::string limit = " --device_memory 120MB";
  RunningProgram alone = folder.train("--num_gpus 1 --steps 1" + model + limit);
  CHECK(alone.wait(100) != 0);
  CAPTURE(alone.text());
  CHECK(alone.text().find("--num_gpus 2 --sequence_parallel_size 2") != std::string::npos);
  const Measured two =
      check_step(folder, "--num_gpus 2 --sequence_parallel_size 2" + model + limit, 500);
  CHECK(two.planned <= 120e6);
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
