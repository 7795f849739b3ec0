// dstrain doctor without a hostfile: what it says about this machine and about a run, and that it leaves nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDoctor = DSTRAIN_PROGRAM " doctor ";

// The paths of all that is in the folder.
std::set<std::string> files_below(const RunFolder& folder) {
  std::set<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder.root))
    paths.insert(entry.path().string());
  return paths;
}

// Returns what follows subject and verdict in the subject's first line with that verdict; without one, what follows the
// subject in its first line. Empty if there is no such line.
std::string told(const std::string& text, const std::string& subject,
                 const std::string& verdict = "") {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(subject + " ")) continue;
    const std::string rest = line.substr(line.find_first_not_of(' ', subject.size()));
    if (verdict.empty()) return rest;
    if (rest.starts_with(verdict + " "))
      return rest.substr(rest.find_first_not_of(' ', verdict.size()));
  }
  return "";
}

// The words that start the doctor with the options, in a folder with a file system `small` of its own.
std::string words_on_small_disk(const RunFolder& folder, const std::string& mount_options,
                                const std::string& options) {
  fs::create_directories(folder.root / "small");
  const std::string mount = "mount -t tmpfs -o " + mount_options + " none small";
  if (folder.start("unshare -rm sh -c '" + mount + "' 2>/dev/null").wait() != 0) return "";
  return "unshare -rm sh -c '" + mount + " && exec " + kDoctor + options + "'";
}

TEST_CASE("doctor says in a table what this machine has, and leaves nothing") {
  const RunFolder folder;
  const std::set<std::string> before = files_below(folder);
  const std::string text = folder.output_of(kDoctor);
  CAPTURE(text);
  for (const char* subject :
       {"program",       "GPUs",       "processor", "cores",      "kernels",    "memory",
        "swap",          "overcommit", "/dev/shm",  "huge pages", "open files", "processes",
        "locked memory", "core files", "stack",     "output",     "loopback",   "host name",
        "mpirun",        "ssh",        "srun"}) {
    CAPTURE(subject);
    CHECK_FALSE(told(text, subject).empty());
    CHECK(told(text, subject, "problem").empty());
  }
  CHECK(text.find(", for ") != std::string::npos);
  CHECK(told(text, "output").find(" " + folder.root.string() + " is writable") !=
        std::string::npos);
  CHECK(text.find("0 problems, ") != std::string::npos);
  CHECK(files_below(folder) == before);
  CHECK(folder.nothing_left());
}

TEST_CASE("doctor --json has the same facts as numbers") {
  const RunFolder folder;
  const json result = json::parse(folder.output_of(std::string(kDoctor) + "--json --num_gpus 3"));
  CHECK(result["problems"] == 0);
  CHECK(result["ranks"] == 3);
  CHECK_FALSE(result["version"].get<std::string>().empty());
  int notes = 0;
  json of_subject;
  for (const json& line : result["lines"]) {
    CHECK((line["health"] == "ok" || line["health"] == "note"));
    CHECK((line["health"] == "ok" || !line["remedy"].get<std::string>().empty()));
    notes += line["health"] == "note" ? 1 : 0;
    if (!of_subject.contains(line["subject"].get<std::string>()))
      of_subject[line["subject"].get<std::string>()] = line["values"];
  }
  CHECK(result["notes"] == notes);
  CHECK(of_subject["cores"]["usable"] >= 1);
  CHECK(of_subject["memory"]["physical"] >= of_subject["memory"]["available"]);
  CHECK(of_subject["output"]["free"] > 0);
  CHECK(of_subject["output"]["writable"] == true);
  CHECK(of_subject["processes"]["needed"] > 3);
  CHECK(of_subject["host name"]["name"] == result["host"]);
}

TEST_CASE("an output directory that cannot be written to is a problem") {
  const auto [mount_options, reason] = GENERATE(table<std::string, std::string>(
      {{"ro", "cannot write in the output directory "},
       {"size=64k", "a probe needs 1.05 MB, and 65.5 kB are free in "}}));
  const RunFolder folder;
  const std::string words = words_on_small_disk(folder, mount_options, "--output small");
  SKIP_UNLESS(!words.empty(), "this machine lets nobody make a small file system");
  const std::string text = folder.output_of(words, 1);
  CAPTURE(text);
  CHECK(told(text, "output", "problem").starts_with(reason));
  CHECK(told(text, "output", "problem").find("small") != std::string::npos);
  CHECK(text.find("1 problem, ") != std::string::npos);
}

TEST_CASE("with a configuration doctor says whether the run fits here, and leaves nothing") {
  const RunFolder folder;
  const std::set<std::string> before = files_below(folder);
  const std::string run = std::string(kDoctor) + "--config c.json --device cpu --num_gpus 2 ";
  const std::string text = folder.output_of(run + folder.token());
  CAPTURE(text);
  CHECK(told(text, "run's memory", "ok").starts_with("the ranks need "));
  CHECK(told(text, "run's memory", "ok").find("(2 ranks x (") != std::string::npos);
  CHECK_FALSE(told(text, "run's input", "ok").empty());
  CHECK_FALSE(told(text, "run's start", "ok").empty());
  CHECK(told(text, "output").find(" " + folder.path("out") + " is writable") != std::string::npos);
  CHECK(files_below(folder) == before);
  CHECK(folder.nothing_left());
}

TEST_CASE("a model that is too large, and input that is wrong, are problems of the run") {
  const RunFolder folder;
  const std::string run = std::string(kDoctor) + "--config c.json --device cpu ";
  const std::string large =
      folder.output_of(run + "--set dstrain.model.n_embd=16384 --set dstrain.model.n_layer=500", 1);
  CAPTURE(large);
  const std::string memory = told(large, "run's memory", "problem");
  CHECK(memory.starts_with("the run needs at least "));
  CHECK(memory.find("and this machine offers ") != std::string::npos);
  CHECK_FALSE(told(large, "cores", "ok").empty());
  const std::string missing = folder.output_of(run + "--data none.txt", 1);
  CHECK(told(missing, "run's input", "problem").find("none.txt") != std::string::npos);
  CHECK(told(missing, "run's memory", "ok").empty());
  CHECK(missing.find("1 problem, ") != std::string::npos);
}

TEST_CASE("a run's checkpoints in the output directory are a problem before it starts") {
  const RunFolder folder;
  CHECK(folder.train("--device cpu --save_interval 2").wait() == 0);
  const std::set<std::string> before = files_below(folder);
  const std::string text =
      folder.output_of(std::string(kDoctor) + "--config c.json --device cpu " + folder.token(), 1);
  CAPTURE(text);
  CHECK(
      told(text, "run's start", "problem").find("holds the checkpoint of step 4 of another run") !=
      std::string::npos);
  CHECK(files_below(folder) == before);
}

TEST_CASE("directories that a run offloads to have lines of their own") {
  const RunFolder folder;
  folder.write("offload.json", R"({"train_batch_size": 4, "zero_optimization": {"stage": 3,
    "offload_optimizer": {"device": "nvme", "nvme_path": "drive"}}, "dstrain": {"model":
    {"n_layer": 1, "n_embd": 16, "n_head": 2, "block_size": 8}, "data": {"path": "text.txt"},
    "steps": 4}})");
  const std::set<std::string> before = files_below(folder);
  const std::string text =
      folder.output_of(std::string(kDoctor) + "--config offload.json --device cpu");
  CAPTURE(text);
  CHECK(told(text, "nvme").find(" " + folder.root.string() + " is writable") != std::string::npos);
  CHECK(files_below(folder) == before);
}

TEST_CASE("a setting of the environment that a run refuses is a problem") {
  const RunFolder folder;
  const std::string text =
      folder.output_of(kDoctor, 1, {{"OMP_NUM_THREADS", "many"}, {"DSTRAIN_MAX_ISA", "avx3"}});
  CAPTURE(text);
  CHECK(told(text, "cores", "problem").starts_with("OMP_NUM_THREADS is \"many\": expected "));
  CHECK(told(text, "kernels", "problem").starts_with("DSTRAIN_MAX_ISA is \"avx3\"; expected "));
}

TEST_CASE("--json is for this machine, not for the hosts of a file") {
  const RunFolder folder;
  folder.write("hosts", "localhost slots=1\n");
  const std::string text = folder.output_of(std::string(kDoctor) + "--hostfile hosts --json", 1);
  CHECK(only_error(text) ==
        "dstrain doctor --json is for this machine, and hosts names hosts: leave one out");
}

}  // namespace
}  // namespace dstrain
