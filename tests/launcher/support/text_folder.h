// A directory in which a test runs a small model from a folder of Hugging Face on texts.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/temp_dir.h"

namespace dstrain {

inline constexpr const char* kProgram = DSTRAIN_PROGRAM;
inline const Environment kAsRoot = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};

inline nlohmann::json llama_tokenizer() {
  return nlohmann::json::parse(
      bytes_of_file(DSTRAIN_SOURCE_DIR "/tests/data/tokenizer/golden/llama3.json"));
}

// A folder with a small model and a tokenizer, m; a configuration, t.json, of two steps on text.txt; and an output, out.
struct TextFolder : RunFolder {
  TextFolder() {
    std::filesystem::create_directory(root / "m");
    write("m/config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 1000,
      "max_position_embeddings": 64})");
    write("m/tokenizer.json", llama_tokenizer().dump());
    write("t.json", R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
      "dstrain": {"data": {"path": "text.txt", "seq_len": 8}, "steps": 2, "save_last": false}})");
  }

  // Returns what a command with this exit status wrote to standard output, and to standard error if `errors` is empty.
  std::string said(const std::string& words, int status = 0, const std::string& errors = "") const {
    return output_of(words + errors, status, kAsRoot);
  }
  // Returns what a run wrote.
  std::string run(const std::string& options, int status = 0) const {
    return said(command(options), status);
  }
  std::string command(const std::string& options) const {
    return std::string(kProgram) + " --config t.json --model m --init_weights random --overwrite " +
           token() + " " + options;
  }
  nlohmann::json evaluated(const std::string& data) const {
    return nlohmann::json::parse(
        said(std::string(kProgram) + " eval --json --run out --data " + data, 0, " 2>err"));
  }
  std::string generated(const std::string& options) const {
    return said(std::string(kProgram) + " generate --run out --temperature 0 " + options, 0,
                " 2>err");
  }
  // Returns the paths of all files.
  std::set<std::string> files() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
      all.insert(entry.path());
    return all;
  }
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string json_line(const std::string& text) {
  return nlohmann::json{{"text", text}}.dump() + "\n";
}

}  // namespace dstrain
