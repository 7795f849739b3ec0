// Runs the built dstrain program in a scratch folder and reads its output files. Uses only the documented
// interface (command line, metrics.jsonl, safetensors; docs/formats.md), not dstrain's libraries.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dstrain::golden {

// A golden case: the files of tests/golden/<name>.
struct Case {
  std::string name;
  std::filesystem::path folder;
  nlohmann::json config;
  std::vector<std::string> data;  // the --data argument; empty if the case has no data file

  explicit Case(const std::string& case_name);
};

nlohmann::json read_json(const std::filesystem::path& path);
std::string read_bytes(const std::filesystem::path& path);

using Weights = std::map<std::string, std::vector<float>>;
// Returns every tensor of an fp32 safetensors file but those of integers.
Weights read_weights(const std::filesystem::path& path);

// An empty folder in the build tree, removed with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The output of a training run: its metrics by step, and the folder of its files.
struct Run {
  std::vector<nlohmann::json> steps;  // the lines of metrics.jsonl that have a loss
  std::filesystem::path output;

  std::vector<double> column(const std::string& key) const;
  // Returns the losses of its validations, in order.
  std::vector<double> validations() const;
};

// Returns the largest relative distance of a run's values from those of golden steps, under this key.
double largest_difference(const Run& run, const nlohmann::json& steps, const std::string& key);

// What a run starts from: the case's initial weights, or what its arguments say.
enum class Start { weights, model };

// Trains `config` from the case's initial weights, with the extra arguments, and writes everything to
// scratch/<label>. Throws std::runtime_error with the program's output if its exit status is not 0.
Run train(const Case& golden, const nlohmann::json& config, const ScratchFolder& scratch,
          const std::string& label, const std::vector<std::string>& arguments = {},
          Start start = Start::weights);

}  // namespace dstrain::golden
