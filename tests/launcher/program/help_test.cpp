// The program's help in a terminal, as a manual page, and in shells.
#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>

#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/terminal.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

// Returns the length of the longest line that wraps: no command line, which stays whole.
size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.starts_with("  dstrain ")) longest = std::max(longest, line.size());
  }
  return longest;
}

bool is_installed(const RunFolder& folder, const std::string& program) {
  return folder.output_of("sh -c 'command -v " + program + " >found; echo'") == "\n" &&
         !folder.read("found").empty();
}

TEST_CASE("the help uses the width of a terminal, and 100 columns without one") {
  const RunFolder folder;
  const size_t piped = longest_line(folder.output_of(DSTRAIN_PROGRAM " --help"));
  CHECK((piped > 80 && piped <= 100));
  TerminalProgram program(folder, "--help");
  CHECK(program.wait() == 0);
  const size_t shown = longest_line(program.read());
  CHECK((shown > 60 && shown <= 80));
}

TEST_CASE("groff and mandoc read the manual page without a complaint") {
  const RunFolder folder;
  folder.write("dstrain.1", folder.output_of(DSTRAIN_PROGRAM " help --man"));
  SKIP_UNLESS(is_installed(folder, "groff"), "there is no groff");
  CHECK(folder.output_of("groff -man -T utf8 -ww -z dstrain.1").empty());
  CHECK(folder.output_of("sh -c 'groff -man -T ascii dstrain.1 | grep -c -e --num_gpus'") != "0\n");
  SKIP_UNLESS(is_installed(folder, "mandoc"), "there is no mandoc");
  CHECK(folder.output_of("mandoc -T lint -W error dstrain.1").empty());
}

// Sources the completion and prints what completes the last of the words that follow.
constexpr const char* kCompleteInBash = R"(. ./completion
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_dstrain
echo "${COMPREPLY[@]}"
)";

TEST_CASE("bash completes commands, options, values and names of files") {
  const RunFolder folder;
  folder.write("completion", folder.output_of(DSTRAIN_PROGRAM " help --completion bash"));
  folder.write("complete", kCompleteInBash);
  CHECK(folder.output_of("bash -n completion").empty());
  const auto completed = [&folder](const std::string& words) {
    return folder.output_of("bash --norc complete " + words);
  };
  CHECK(completed("dstrain pl") == "plan\n");
  CHECK(completed("dstrain --dev") == "--device --device_memory\n");
  CHECK(completed("dstrain --device ''") == "auto cpu cuda\n");
  CHECK(completed("dstrain --device =") == "auto cpu cuda\n");
  CHECK(completed("dstrain --device = cu") == "cuda\n");
  CHECK(completed("dstrain ''").starts_with("train init plan verify "));
  CHECK(completed("dstrain plan --config c.json --larg") == "--largest\n");
  CHECK(completed("dstrain plan --config c.j") == "c.json\n");
  CHECK(completed("dstrain --config c.json --json") == "\n");
  CHECK(completed("dstrain plan --timeline --js") == "--json\n");
  CHECK(completed("dstrain plan --rank ''") == "\n");
  CHECK(completed("dstrain verify --seed_fault flip") == "flipped_bit\n");
  CHECK(completed("dstrain export ''") == "tmp\n");
  CHECK(completed("dstrain export tmp --format ''") == "hf safetensors peft gguf\n");
  CHECK(completed("dstrain tokenize --data text.txt c.j") == "c.json\n");
  CHECK(completed("dstrain tokenize --data text.txt --ou") == "--output\n");
  CHECK(completed("dstrain help ben") == "bench-io\n");
  CHECK(completed("dstrain help --completion ''") == "bash zsh fish\n");
}

TEST_CASE("zsh and fish read their completions") {
  const std::string shell = GENERATE(as<std::string>{}, "zsh", "fish");
  const RunFolder folder;
  folder.write("completion", folder.output_of(DSTRAIN_PROGRAM " help --completion " + shell));
  SKIP_UNLESS(is_installed(folder, shell), "there is no " + shell);
  CHECK(folder.output_of(shell + " -n completion").empty());
}

}  // namespace
}  // namespace dstrain
