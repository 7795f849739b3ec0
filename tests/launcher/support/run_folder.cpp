#include "tests/launcher/support/run_folder.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({
  "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1,
  "dstrain": {
    "model": {"n_layer": 1, "n_embd": 16, "n_head": 2, "block_size": 8},
    "data": {"path": "text.txt"}, "steps": 4, "eval_interval": 2, "eval_samples": 2,
    "save_last": false
  }
})";

}  // namespace

RunFolder::RunFolder() {
  std::string name = (fs::temp_directory_path() / "dstrain_run_XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  root = name;
  write("c.json", kConfig);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  write("text.txt", text);
  fs::create_directory(root / "tmp");
}

RunFolder::~RunFolder() {
  for (const pid_t pid : processes_with(token())) ::kill(pid, SIGKILL);
  fs::remove_all(root);
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(root / name) << text;
}

std::string RunFolder::read(const std::string& name) const {
  std::ostringstream all;
  all << std::ifstream(root / name).rdbuf();
  return all.str();
}

RunningProgram RunFolder::start(const std::string& words, const Environment& added) const {
  Environment all = added;
  all.emplace_back("TMPDIR", path("tmp"));
  return RunningProgram({"/bin/sh", "-c", "cd " + root.string() + " && exec " + words}, all);
}

std::string RunFolder::output_of(const std::string& words, int status,
                                 const Environment& added) const {
  RunningProgram program = start(words, added);
  const int ended = program.wait();
  CAPTURE(words, program.text());
  REQUIRE(ended == status);
  return program.text();
}

RunningProgram RunFolder::train(const std::string& options, const Environment& added) const {
  return start(std::string(DSTRAIN_PROGRAM) + " --config c.json " + token() + " " + options, added);
}

bool RunFolder::nothing_left() const {
  return processes_with(token()).empty() && fs::is_empty(root / "tmp");
}

std::string only_error(const std::string& text) {
  const std::string prefix = "dstrain: error: ";
  const size_t at = text.find(prefix);
  if (at == std::string::npos || text.find(prefix, at + 1) != std::string::npos)
    return "not one error in: " + text;
  return text.substr(at + prefix.size(), text.find('\n', at) - at - prefix.size());
}

int lines_of(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace dstrain
