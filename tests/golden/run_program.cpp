#include "tests/golden/run_program.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/support/distance.h"

namespace dstrain::golden {

namespace fs = std::filesystem;
using nlohmann::json;

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

json read_json(const fs::path& path) {
  return json::parse(read_bytes(path));
}

Case::Case(const std::string& case_name)
    : name(case_name),
      folder(fs::path(DSTRAIN_SOURCE_DIR) / "tests/golden" / case_name),
      config(read_json(folder / "config.json")) {
  for (const char* file : {"text.txt", "tokens.bin"})
    if (fs::exists(folder / file)) data = {"--data", (folder / file).string()};
}

Weights read_weights(const fs::path& path) {
  const std::string bytes = read_bytes(path);
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) throw std::runtime_error(path.string() + ": too short");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const json header = json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
  const size_t start = sizeof(header_bytes) + header_bytes;
  Weights weights;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    if (tensor.at("dtype") == "I64") continue;
    if (tensor.at("dtype") != "F32") throw std::runtime_error(name + " is not F32");
    const size_t begin = tensor.at("data_offsets").at(0), end = tensor.at("data_offsets").at(1);
    if (end < begin || start + end > bytes.size()) throw std::runtime_error(name + ": bad offsets");
    std::vector<float>& values = weights[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + start + begin, end - begin);
  }
  return weights;
}

ScratchFolder::ScratchFolder() {
  static std::atomic<int> made{0};
  path_ = fs::path(DSTRAIN_BINARY_DIR) / fmt::format("golden-{}-{}", getpid(), made++);
  fs::remove_all(path_);
  fs::create_directories(path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<double> Run::column(const std::string& key) const {
  std::vector<double> values;
  for (const json& step : steps) values.push_back(step.at(key).get<double>());
  return values;
}

std::vector<double> Run::validations() const {
  std::ifstream metrics(output / "metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(metrics, line);)
    if (const json object = json::parse(line); object.contains("val_loss"))
      losses.push_back(object.at("val_loss"));
  return losses;
}

double largest_difference(const Run& run, const json& steps, const std::string& key) {
  std::vector<double> right;
  for (const json& step : steps) right.push_back(step.at(key).get<double>());
  return largest_relative_distance(right, run.column(key));
}

Run train(const Case& golden, const json& config, const ScratchFolder& scratch,
          const std::string& label, const std::vector<std::string>& arguments, Start start) {
  const fs::path folder = scratch.path() / label;
  fs::create_directories(folder);
  json written = config;
  json& section = written["dstrain"];
  // The checkpoint and the validation of a run's end are tested elsewhere.
  if (!section.contains("save_last")) section["save_last"] = false;
  if (!section.contains("eval_samples")) section["eval_samples"] = 1;
  std::ofstream(folder / "config.json") << written.dump(2);
  Run run{{}, folder / "out"};

  const std::string program = DSTRAIN_BINARY_DIR "/bin/dstrain";
  const fs::path weights = golden.folder / "init.safetensors";
  std::vector<std::string> words = {program};
  const auto given = [&arguments](const char* option) {
    return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
  };
  if (!given("--device")) words.insert(words.end(), {"--device", "cpu"});
  words.insert(words.end(), {"--config", (folder / "config.json").string()});
  if (start == Start::weights && !given("--resume"))
    words.insert(words.end(), {"--init_weights", weights.string()});
  words.insert(words.end(), {"--overwrite", "--output", run.output.string()});
  words.insert(words.end(), golden.data.begin(), golden.data.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string command;
  for (const std::string& word : words) command += fmt::format("'{}' ", word);
  const fs::path log = folder / "log.txt";
  const int status = std::system(fmt::format("{} > '{}' 2>&1", command, log.string()).c_str());
  if (status != 0)
    throw std::runtime_error(
        fmt::format("{}\nended with status {}:\n{}", command, status, read_bytes(log)));

  std::ifstream metrics(run.output / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    json object = json::parse(line);
    if (object.contains("loss")) run.steps.push_back(std::move(object));
  }
  return run;
}

}  // namespace dstrain::golden
