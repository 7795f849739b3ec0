// Runs the built dstrain program in a folder of its own and reads what it wrote. Stands on the
// public contract alone (command line, metrics.jsonl, safetensors), not on dstrain's libraries.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dstrain::golden {

// A golden case: tests/golden/<name>.
struct Case {
  std::string name;
  std::filesystem::path folder;
  nlohmann::json config;
  std::vector<std::string> data;  // the --data argument, where the case has a file

  explicit Case(const std::string& case_name);
};

nlohmann::json read_json(const std::filesystem::path& path);
std::string read_bytes(const std::filesystem::path& path);

using Weights = std::map<std::string, std::vector<float>>;
// Every tensor of an fp32 safetensors file.
Weights read_weights(const std::filesystem::path& path);

// A folder under the build tree, emptied when it is made and removed with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Run {
  std::vector<nlohmann::json> steps;  // the lines of metrics.jsonl that have a loss
  std::filesystem::path output;

  std::vector<double> column(const std::string& key) const;
};

// Trains `config` (written beside the output) from the case's initial weights into
// scratch/<label>, with the extra arguments. Throws std::runtime_error with the program's own
// output where it does not exit with 0.
Run train(const Case& golden, const nlohmann::json& config, const Scratch& scratch,
          const std::string& label, const std::vector<std::string>& arguments = {});

}  // namespace dstrain::golden
