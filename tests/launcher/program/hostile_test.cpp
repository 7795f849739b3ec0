// Names, paths and values that a shell would run: they are data everywhere, or refused by name.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/config/shell_quote.h"
#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Each would make a file `ran` where a shell gets to read it.
const std::vector<std::string> kTraps = {"$(touch ran)",   "`touch ran`",     "x;touch ran",
                                         "x\ntouch ran\n", "'; touch ran; '", "\"; touch ran; \"",
                                         "x|touch ran",    "x&touch ran&",    ">ran"};

std::string program(const std::vector<std::string>& words) {
  std::vector<std::string> command = {DSTRAIN_PROGRAM};
  command.insert(command.end(), words.begin(), words.end());
  return shell_command(command);
}

bool nothing_ran(const RunFolder& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder.root))
    if (entry.path().filename() == "ran") return false;
  return true;
}

// The variables of a process.
std::vector<std::string> environment_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::vector<std::string> all;
  for (std::string variable; std::getline(file, variable, '\0');) all.push_back(variable);
  return all;
}

TEST_CASE("paths are data, on one rank and on two") {
  const std::string ranks = GENERATE("1", "2");
  const RunFolder folder;
  const std::string name = "it's a \"trap\"; touch ran; $(touch ran) `touch ran` \\ * \n-x";
  fs::rename(folder.root / "c.json", folder.root / (name + ".json"));
  fs::rename(folder.root / "text.txt", folder.root / (name + ".txt"));
  RunningProgram run =
      folder.start(program({"--config", name + ".json", "--data", name + ".txt", "--output",
                            name + " out", "--num_gpus", ranks, "--steps", "1"}));
  CHECK(run.wait() == 0);
  CAPTURE(run.text());
  CHECK(fs::exists(folder.root / (name + " out") / "model.safetensors"));
  CHECK(nothing_ran(folder));
}

TEST_CASE("links that wait in the output directory are not followed, on one rank and on two") {
  const std::string ranks = GENERATE("1", "2");
  const RunFolder folder;
  folder.write("precious", "precious");
  fs::create_directory(folder.root / "out");
  for (const std::string name : {"model.safetensors.tmp", "resolved_config.json.tmp", "vocab.json"})
    fs::create_symlink(folder.path("precious"), folder.root / "out" / name);
  RunningProgram run = folder.train("--steps 1 --num_gpus " + ranks);
  CHECK(run.wait() == 0);
  CAPTURE(run.text());
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  for (const std::string name : {"metrics.jsonl", ".dstrain.lock"}) {
    fs::remove(folder.root / "out" / name);
    fs::create_symlink(folder.path("precious"), folder.root / "out" / name);
    RunningProgram refused = folder.train("--overwrite --steps 1 --num_gpus " + ranks);
    CHECK(refused.wait() == 1);
    CHECK(
        only_error(refused.text())
            .starts_with("cannot write " + folder.path("out/" + name) + ": it is a symbolic link"));
    fs::remove(folder.root / "out" / name);
  }
  CHECK(folder.read("precious") == "precious");
}

TEST_CASE("paths that are not UTF-8 are refused with the option's name, before anything starts") {
  const RunFolder folder;
  const std::string name = "b\xff", config = name + ".json";
  fs::copy(folder.root / "c.json", folder.root / config);
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--config", {"--config", config, folder.token()}},
      {"--config", {"check", "--json", "--config=" + config}},
      {"PATH", {"bench-io", "--json", name}},
      {"--output", {"--config", "c.json", "--output", name}},
      {"--data", {"--config", "c.json", folder.token(), "--data", name}},
      {"--init_weights", {"--config", "c.json", folder.token(), "--init_weights", name}},
      {"--export",
       {"--config", "c.json", folder.token(), "--launcher=openmpi", "--export", "A=" + name}},
      {"--launcher_args",
       {"--config", "c.json", folder.token(), "--launcher=openmpi", "--launcher_args=" + name}}};
  for (const auto& [option, words] : cases) {
    CAPTURE(option, words);
    RunningProgram run = folder.start(program(words) + " >output");
    CHECK(run.wait() == 1);
    CHECK(only_error(run.text()).starts_with(option + ": expected UTF-8"));
    CHECK(folder.read("output").find("step=") == std::string::npos);
    CHECK_FALSE(fs::exists(folder.root / "out/model.safetensors"));
  }
}

TEST_CASE("a directory that other hosts cannot be told is refused by name") {
  const RunFolder folder;
  fs::create_directory(folder.root / "d\xff");
  const std::string command =
      program({"--config", folder.path("c.json"), "--data", folder.path("text.txt"), folder.token(),
               "--launcher", "openmpi"});
  RunningProgram here = folder.start("sh -c " + shell_quoted("cd d* && exec " + command));
  CHECK(here.wait() == 1);
  CHECK(only_error(here.text()).starts_with("the current directory '"));
  CHECK(only_error(here.text()).find("not UTF-8") != std::string::npos);
  RunningProgram files = folder.start("env TMPDIR=" + folder.path("d\xff") + " " + command);
  CHECK(files.wait() == 1);
  CHECK(only_error(files.text()).starts_with("TMPDIR: expected UTF-8"));
}

TEST_CASE("values of variables are data, and reach every rank") {
  const auto ranks = GENERATE(1, 2);
  const RunFolder folder;
  folder.write(".deepspeed_env", "# ours\nFROM_FILE=$(touch ran) 'x'\nBOTH=file\n");
  std::vector<std::string> words = {
      "--config", "c.json",    folder.token(), "--num_gpus",  std::to_string(ranks),
      "--steps",  "100000000", "--export",     "BOTH=option", "--export",
      "OWN"};
  std::vector<std::string> expected = {"FROM_FILE=$(touch ran) 'x'", "BOTH=option",
                                       "OWN=`touch ran`", "NCCL_DEBUG=a b"};
  for (size_t i = 0; i < kTraps.size(); ++i) {
    expected.push_back("TRAP" + std::to_string(i) + "=" + kTraps[i]);
    words.insert(words.end(), {"--export", expected.back()});
  }
  RunningProgram run =
      folder.start(program(words), {{"OWN", "`touch ran`"}, {"NCCL_DEBUG", "a b"}});
  REQUIRE(wait_until([&] { return run.wrote("step=3 "); }));
  const auto processes = processes_with(folder.token());
  CHECK(processes.size() == (ranks == 1 ? 1 : 2 + static_cast<size_t>(ranks)));
  for (const pid_t pid : processes) {
    const std::vector<std::string> variables = environment_of(pid);
    for (const std::string& variable : expected) {
      CAPTURE(variable);
      CHECK(std::find(variables.begin(), variables.end(), variable) != variables.end());
    }
  }
  CHECK(nothing_ran(folder));
}

TEST_CASE("a number of threads that is exported is that of one rank, too") {
  const RunFolder folder;
  RunningProgram run = folder.train("--steps 100000000 --export OMP_NUM_THREADS=1");
  REQUIRE(wait_until([&] { return run.wrote("step=3 "); }));
  const std::vector<std::string> variables = environment_of(run.pid());
  CHECK(std::find(variables.begin(), variables.end(), "OMP_NUM_THREADS=1") != variables.end());
}

TEST_CASE("hostile host names are refused before anything is started, with file and line") {
  const RunFolder folder;
  std::vector<std::string> names = kTraps;
  names.insert(names.end(), {"-oProxyCommand=touch ran", "-oProxyCommand=touch${IFS}ran", "--help",
                             "a b", "'n1'", "n1\x1b[2J", "n1\x01"});
  for (const std::string& name : names) {
    CAPTURE(name);
    folder.write("hosts", "# a comment\n" + name + " slots=2\n");
    RunningProgram run = folder.start(program({"hosts", "-H", "hosts"}));
    CHECK(run.wait() == 1);
    const std::string error = only_error(run.text());
    CAPTURE(error);
    CHECK(error.starts_with("hosts:2: "));
    CHECK(error.find('\x1b') == std::string::npos);
    CHECK(lines_of(run.text()) == 1);
  }
  folder.write("hosts", "n1 slots=2\n");
  for (const std::string& name : names)
    for (const std::string option : {"--include=", "--exclude="}) {
      CAPTURE(name);
      RunningProgram run = folder.start(program({"hosts", "-H", "hosts", option + name}));
      CHECK(run.wait() == 1);
      CHECK(only_error(run.text()).starts_with(option.substr(0, option.size() - 1) + ": "));
      CHECK(lines_of(run.text()) == 1);
    }
  CHECK(nothing_ran(folder));
}

TEST_CASE(
    "a hostfile of 10,000 hosts is printed, one with lines of a megabyte is read or refused") {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "node" + std::to_string(i) + " slots=6\n";
  folder.write("hosts", text);
  RunningProgram run = folder.start(program({"hosts", "-H", "hosts"}) + " | tail -n 2");
  CHECK(run.wait() == 0);
  CHECK(run.text() == "node9999  0-5    59994-59999\n10000 hosts, 60000 ranks\n");

  const std::string megabyte(1 << 20, 'a');
  folder.write("hosts", "#" + megabyte + "\nn1 slots=1 #" + megabyte + "\n");
  RunningProgram comments = folder.start(program({"hosts", "-H", "hosts"}));
  CHECK(comments.wait() == 0);
  folder.write("hosts", megabyte + " slots=1\n");
  RunningProgram name = folder.start(program({"hosts", "-H", "hosts"}));
  CHECK(name.wait() == 1);
  CHECK(only_error(name.text()).size() < 200);
}

}  // namespace
}  // namespace dstrain
