// Each family of transformers' models against PyTorch, and exported models against transformers: check_family.py and
// check_export.py in this folder make the comparisons; check_lora.py compares adapters with PEFT's, and
// check_preferences.py preferences with TRL's.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

// Returns a Python that has these packages: the one that an environment variable names, or that of README.md; empty: none.
std::string python_with(const std::string& packages = "safetensors, torch, transformers") {
  const char* const named = std::getenv("DSTRAIN_TRANSFORMERS_PYTHON");
  const std::string python = named ? named : DSTRAIN_SOURCE_DIR "/.deps/transformers/bin/python";
  const std::string command = fmt::format("'{}' -c 'import {}' > /dev/null 2>&1", python, packages);
  return std::system(command.c_str()) == 0 ? python : "";
}

// Runs a script of this folder with these arguments and a folder of its own, and checks that it succeeds.
void check_script(const std::string& python, const std::string& script,
                  const std::string& arguments) {
  const TempDir folder;
  const std::string log = folder / "log.txt";
  const std::string command = fmt::format(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 '{}' "
      "'{}/tests/hugging_face/{}' --program '{}' {} --folder '{}' > '{}' 2>&1",
      python, DSTRAIN_SOURCE_DIR, script, DSTRAIN_PROGRAM, arguments, folder / "work", log);
  const int status = std::system(command.c_str());
  INFO(script << " " << arguments << "\n" << bytes_of_file(log));
  CHECK(status == 0);
}

TEST_CASE("an exported GPT-lite has in transformers the logits that it has here") {
  const std::string python = python_with();
  SKIP_UNLESS(!python.empty(), "no Python with transformers (tests/hugging_face/README.md)");
  check_script(python, "check_export.py", "");
}

TEST_CASE(
    "families train as PyTorch trains transformers' models, and their files are transformers'") {
  const std::string python = python_with();
  SKIP_UNLESS(!python.empty(), "no Python with transformers (tests/hugging_face/README.md)");
  for (const std::string family :
       {"gpt2",          "gpt2_untied",   "llama",      "llama_biases",
        "llama_linear",  "llama_dynamic", "llama_yarn", "mistral",
        "mistral_whole", "qwen2",         "qwen3",      "gemma",
        "gemma2",        "gemma3_text",   "gpt_neox",   "gpt_neox_serial",
        "mixtral",       "mixtral_one",   "qwen2_moe",  "qwen3_moe",
        "olmoe",         "deepseek_v3"})
    check_script(python, "check_family.py", "--family " + family);
}

TEST_CASE("pairs of answers train as TRL's trainers train them") {
  const std::string python = python_with("datasets, torch, transformers, trl");
  SKIP_UNLESS(!python.empty(), "no Python with trl (tests/hugging_face/README.md)");
  check_script(python, "check_preferences.py", "");
}

TEST_CASE("adapters and parameter groups train as PEFT and PyTorch train them") {
  const std::string python = python_with("peft, safetensors, torch, transformers");
  SKIP_UNLESS(!python.empty(), "no Python with peft (tests/hugging_face/README.md)");
  for (const std::string family : {"gpt2", "llama", "qwen2", "qwen3"})
    check_script(python, "check_lora.py", "--family " + family);
}

TEST_CASE("flops_profiler counts what DeepSpeed's profiler counts of transformers' model") {
  const std::string python = python_with("deepspeed, safetensors, torch, transformers");
  SKIP_UNLESS(!python.empty(), "no Python with deepspeed (tests/hugging_face/README.md)");
  check_script(python, "../../benchmarks/flops_profiler/compare.py", "--family llama --tokens 64");
}

}  // namespace
}  // namespace dstrain
