// What the monitors tensorboard and csv_monitor leave of real runs, across a resume.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kBatch = 4;  // samples of a step of RunFolder's configuration

constexpr const char* kBoth =
    " --save_interval 2 --set tensorboard.enabled=true --set tensorboard.output_path=tb"
    " --set tensorboard.job_name=one --set csv_monitor.enabled=true"
    " --set csv_monitor.output_path=csv/ --set csv_monitor.job_name=one";

void run(const RunFolder& folder, const std::string& options) {
  RunningProgram program = folder.train(options);
  const int status = program.wait(120);
  CAPTURE(options, program.text());
  REQUIRE(status == 0);
}

using Series = std::vector<std::pair<int64_t, double>>;  // by samples

// Returns what metrics.jsonl has under a key.
Series metrics_of(const RunFolder& folder, const std::string& key) {
  Series series;
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const json object = json::parse(line); object.contains(key))
      series.emplace_back(object["step"].get<int64_t>() * kBatch, object[key].get<double>());
  return series;
}

// Returns a csv file's values; its first line must be the only header.
Series csv_of(const RunFolder& folder, const std::string& tag, const std::string& name) {
  std::istringstream lines(folder.read("csv/one/" + tag + ".csv"));
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(line == "step," + name);
  Series series;
  while (std::getline(lines, line)) {
    const size_t comma = line.find(',');
    REQUIRE(comma != std::string::npos);
    series.emplace_back(std::stoll(line), std::stod(line.substr(comma + 1)));
  }
  return series;
}

// Values of an event file are floats.
void check_events(const json& events, const std::string& tag, const Series& expected) {
  CAPTURE(tag);
  REQUIRE(events.contains(tag));
  REQUIRE(events[tag].size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(events[tag][i][0] == expected[i].first);
    CHECK(events[tag][i][1].get<float>() == static_cast<float>(expected[i].second));
  }
}

void check_all(const RunFolder& folder, const json& events) {
  check_events(events, "Train/Samples/train_loss", metrics_of(folder, "loss"));
  check_events(events, "Train/Samples/lr", metrics_of(folder, "lr"));
  check_events(events, "Train/Samples/eval_loss", metrics_of(folder, "val_loss"));
  check_events(events, "dstrain/grad_norm", metrics_of(folder, "grad_norm"));
  CHECK_FALSE(events.contains("Train/Samples/loss_scale"));  // the run has none
  CHECK(events.contains("dstrain/tokens_per_second"));
}

std::string reader(const std::string& options) {
  return std::string("python3 ") + DSTRAIN_SOURCE_DIR +
         "/tests/launcher/support/read_events.py tb/one" + options;
}

TEST_CASE("monitors have every step once across a resume, with DeepSpeed's tags over samples") {
  const auto* ranks = GENERATE(" --num_gpus 1", " --num_gpus 2");
  const RunFolder folder;
  run(folder, std::string("--steps 5 --set dstrain.eval_interval=2") + kBoth + ranks);
  // Steps 3 to 5 were reported before, and are reported again.
  run(folder, std::string("--steps 7 --set dstrain.eval_interval=2 --resume "
                          "out/checkpoints/step_2") +
                  kBoth + ranks);
  const Series losses = metrics_of(folder, "loss");
  CHECK(losses.size() == 7);
  CHECK(csv_of(folder, "Train_Samples_train_loss", "train_loss") == losses);
  CHECK(csv_of(folder, "Train_Samples_eval_loss", "eval_loss") == metrics_of(folder, "val_loss"));
  CHECK(csv_of(folder, "Train_Samples_lr", "lr") == metrics_of(folder, "lr"));
  CHECK(csv_of(folder, "dstrain_grad_norm", "grad_norm") == metrics_of(folder, "grad_norm"));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path("tb/one"))) ++files;
  CHECK(files == 2);
  check_all(folder, json::parse(folder.output_of(reader(""))));
  RunningProgram other = folder.start(reader(" --tensorboard") + " 2>warnings");
  const int status = other.wait();
  SKIP_UNLESS(status != 77, "TensorBoard's own reader is not installed");
  REQUIRE(status == 0);
  check_all(folder, json::parse(other.text()));
}

// Returns how many lines of a text begin with `start`.
int64_t lines_with(const std::string& text, const std::string& start) {
  int64_t count = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) count += line.starts_with(start) ? 1 : 0;
  return count;
}

TEST_CASE("wall_clock_breakdown: DeepSpeed's lines and tags of every step, and the same weights") {
  // With one rank a step has four micro-batches, with two it has two.
  const auto* options = GENERATE("1", "2", "2 --set zero_optimization.stage=3");
  CAPTURE(options);
  const RunFolder folder, plain;
  const std::string all = std::string("--steps 3 --num_gpus ") + options;
  run(plain, all);
  RunningProgram program = folder.train(all + kBoth + " --set wall_clock_breakdown=true");
  const int status = program.wait(120);
  const std::string text = program.text();
  CAPTURE(text);
  REQUIRE(status == 0);
  CHECK(lines_with(text, "time (ms) | fwd_microstep: ") == (options[0] == '1' ? 12 : 6));
  CHECK(lines_with(text, "time (ms) | fwd: ") == 3);
  CHECK(lines_with(text, "time (ms) | pipe_") == 0);
  CHECK(plain.read("out/model.safetensors") == folder.read("out/model.safetensors"));
  const Series steps = metrics_of(folder, "step_ms");
  std::vector<double> sums(steps.size());
  for (const char* part : {"forward", "backward", "step"}) {
    const std::string name = std::string("elapsed_time_ms_") + part;
    const Series times = csv_of(folder, "Train_Samples_" + name, name);
    REQUIRE(times.size() == 3);
    for (size_t i = 0; i < times.size(); ++i) {
      CHECK(times[i].second > 0);
      sums[i] += times[i].second;
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] <= steps[i].second);
}

TEST_CASE("wall_clock_breakdown of a pipeline: lines every steps_per_print steps, with messages") {
  const RunFolder folder;
  RunningProgram program = folder.train(
      "--num_gpus 2 --pipeline_num_stages 2 --steps 4 "
      "--set steps_per_print=2 --set dstrain.model.n_layer=2 --set wall_clock_breakdown=true");
  const int status = program.wait(120);
  const std::string text = program.text();
  CAPTURE(text);
  REQUIRE(status == 0);
  CHECK(lines_with(text, "time (ms) | fwd_microstep: ") == 8);
  CHECK(lines_with(text, "time (ms) | fwd: ") == 2);
  CHECK(lines_with(text, "time (ms) | pipe_send_output: ") == 2);
}

TEST_CASE("a monitor whose directory cannot be made ends the run before its first step") {
  const RunFolder folder;
  folder.write("file", "");
  RunningProgram program = folder.train(
      "--steps 2 --set csv_monitor.enabled=true --set csv_monitor.output_path=file/below");
  CHECK(program.wait(60) != 0);
  CHECK(program.text().find("csv_monitor: cannot make the directory file/below/DeepSpeedJobName") !=
        std::string::npos);
}

TEST_CASE("a run without monitors writes nothing for them") {
  const RunFolder folder;
  run(folder, "--steps 1");
  CHECK(folder.read("out/resolved_config.json").find("csv_monitor") == std::string::npos);
  CHECK_FALSE(fs::exists(folder.path("DeepSpeedJobName")));
}

}  // namespace
}  // namespace dstrain
