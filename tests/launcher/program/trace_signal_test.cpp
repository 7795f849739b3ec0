// SIGUSR2 to a run: a trace of the next steps of all ranks, and the results of a run that got no signal.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;

const Environment kThreads = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                              {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                              {"OMP_NUM_THREADS", "1"}};

// A way to start a run, and the number of its ranks.
struct Start {
  std::string starter, options;
  int ranks;
};

Start some_start() {
  return GENERATE(Start{"", "", 1}, Start{"", "--num_gpus 2 ", 2},
                  Start{"mpirun --oversubscribe --bind-to none -np 2 ", "", 2});
}

RunningProgram start_run(const RunFolder& folder, const Start& start, const std::string& options) {
  return folder.start(start.starter + DSTRAIN_PROGRAM + " --config c.json " + folder.token() + " " +
                          start.options + options,
                      kThreads);
}

int steps_of(const RunFolder& folder) {
  return lines_of(folder.read("out/metrics.jsonl"));
}

std::vector<std::string> traces_of(const RunFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.root / "out"))
    if (const std::string name = entry.path().filename().string(); name.starts_with("trace_"))
      names.push_back(name);
  return names;
}

// The numbers of the steps that a file has, which must be the same for all ranks.
std::set<int> steps_in(const RunFolder& folder, const std::string& name, int ranks) {
  std::vector<std::set<int>> steps(static_cast<size_t>(ranks));
  const json trace = json::parse(folder.read("out/" + name));
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("tid") == 0)
      steps.at(event.at("pid").get<size_t>())
          .insert(std::stoi(event.at("name").get<std::string>().substr(5)));
  for (const std::set<int>& others : steps) CHECK(others == steps.front());
  return steps.front();
}

// The lines of metrics.jsonl without what is measured in seconds.
std::vector<json> results_of(const RunFolder& folder) {
  std::vector<json> results;
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    json one = json::parse(line);
    for (const char* const measured : {"samples_per_second", "step_ms"}) one.erase(measured);
    results.push_back(one);
  }
  return results;
}

TEST_CASE("SIGUSR2 writes a trace of six steps of all ranks and changes no result") {
  const Start start = some_start();
  CAPTURE(start.starter, start.ranks);
  const std::string options =
      "--steps 1500 --set steps_per_print=1000000 --set dstrain.eval_interval=0 ";
  const RunFolder plain, folder;
  RunningProgram without = start_run(plain, start, options);
  CHECK(without.wait() == 0);
  RunningProgram program = start_run(folder, start, options);
  REQUIRE(wait_until([&] { return steps_of(folder) >= 3; }));
  ::kill(program.pid(), SIGUSR2);
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  const std::vector<std::string> names = traces_of(folder);
  REQUIRE(names.size() == 1);
  const std::set<int> steps = steps_in(folder, names.front(), start.ranks);
  CHECK(steps.size() == 6);
  CHECK(*steps.rbegin() == *steps.begin() + 5);
  CHECK(names.front() == "trace_step_" + std::to_string(*steps.begin()) + ".json");
  CHECK(program.wrote("trace of 6 steps in " + folder.path("out/" + names.front()) + ": compute "));
  CHECK(results_of(folder) == results_of(plain));
  CHECK(folder.read("out/model.safetensors") == plain.read("out/model.safetensors"));
  CHECK((!start.starter.empty() || folder.nothing_left()));  // mpirun leaves files
}

TEST_CASE("SIGUSR2 to all processes of a run ends none of them and gives one trace") {
  const Start start = some_start();
  CAPTURE(start.starter, start.ranks);
  const RunFolder folder;
  RunningProgram program = start_run(folder, start, "--steps 100000000 ");
  REQUIRE(wait_until([&] { return steps_of(folder) >= 3; }));
  // The rank starter and the watcher beside the ranks of mpirun are among the descendants.
  std::set<pid_t> processes{program.pid()};
  for (bool more = true; more;) {
    const std::set<pid_t> known = processes;
    for (const pid_t pid : known)
      for (const pid_t child : children_of(pid)) processes.insert(child);
    more = processes.size() > known.size();
  }
  for (const pid_t pid : processes) ::kill(pid, SIGUSR2);
  REQUIRE(wait_until([&] { return program.wrote("trace of 6 steps in "); }));
  const int before = steps_of(folder);
  REQUIRE(wait_until([&] { return steps_of(folder) > before + 20; }));
  ::kill(program.pid(), SIGUSR1);
  CHECK(program.wait() == 128 + SIGUSR1);
  CAPTURE(program.text());
  CHECK(traces_of(folder).size() == 1);
  CHECK_FALSE(program.wrote("dstrain: error"));
  CHECK((!start.starter.empty() || folder.nothing_left()));  // mpirun leaves files
}

TEST_CASE("SIGUSR2 before the first step counts for the steps that follow") {
  const auto ranks = GENERATE(1, 2);
  const RunFolder folder;
  RunningProgram program = folder.train("--steps 100000000 --num_gpus " + std::to_string(ranks));
  // A line of the input, which is read before ranks begin.
  REQUIRE(wait_until([&] { return program.wrote("vocabulary"); }));
  ::kill(program.pid(), SIGUSR2);
  REQUIRE(wait_until([&] { return program.wrote("trace of 6 steps in "); }));
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
  REQUIRE(traces_of(folder).size() == 1);
  CHECK(steps_in(folder, traces_of(folder).front(), ranks).size() == 6);
}

TEST_CASE("a second SIGUSR2 during a trace is said once, and a later one gives a further trace") {
  // Signals within a second count as one, so the six steps must take longer.
  constexpr auto kNextSignal = std::chrono::milliseconds(1100);
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i) + " lazy dogs and a quick brown fox\n";
  folder.write("text.txt", text);
  RunningProgram program = folder.train(
      "--num_gpus 2 --steps 100000000 --set train_batch_size=256 --set "
      "train_micro_batch_size_per_gpu=4 --set dstrain.model.n_embd=192 --set "
      "dstrain.model.n_layer=4 --set dstrain.model.block_size=64 --set dstrain.eval_interval=0",
      kThreads);
  REQUIRE(wait_until([&] { return steps_of(folder) >= 1; }));
  ::kill(program.pid(), SIGUSR2);
  REQUIRE(wait_until([&] { return program.wrote("a trace of the next 6 steps is taken"); }));
  for (int times = 0; times < 2; ++times) {
    std::this_thread::sleep_for(kNextSignal);
    ::kill(program.pid(), SIGUSR2);
  }
  REQUIRE(wait_until([&] { return program.wrote("trace of 6 steps in "); }));
  CHECK(traces_of(folder).size() == 1);
  CHECK(program.wrote("a trace is being taken already"));
  std::this_thread::sleep_for(kNextSignal);
  ::kill(program.pid(), SIGUSR2);
  REQUIRE(wait_until([&] { return traces_of(folder).size() == 2; }));
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
  CHECK(program.text().find("already") == program.text().rfind("already"));
}

}  // namespace
}  // namespace dstrain
