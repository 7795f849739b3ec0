// flops_profiler and memory_breakdown of real runs.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// The log of a run that has succeeded.
std::string log_of(const RunFolder& folder, const std::string& options) {
  RunningProgram program = folder.train(options);
  const int status = program.wait(120);
  std::string text = program.text();
  CAPTURE(options, text);
  REQUIRE(status == 0);
  return text;
}

// The values of the summary's lines by their labels.
using Summary = std::map<std::string, std::string>;

Summary summary_of(const std::string& text) {
  const size_t begin = text.find("world size: ");
  REQUIRE(begin != std::string::npos);
  Summary summary;
  std::istringstream lines(text.substr(begin));
  for (std::string line; std::getline(lines, line) && line.size() > 72 && line[70] == ' ';) {
    std::string label = line.substr(0, 70), value = line.substr(72);
    label.erase(label.find_last_not_of(": ") + 1);
    value.erase(value.find_last_not_of(' ') + 1);
    summary.emplace(std::move(label), std::move(value));
  }
  return summary;
}

// Returns the number that a value begins with, by its unit.
double number_of(const std::string& value) {
  std::istringstream in(value);
  double number = 0;
  std::string unit;
  in >> number >> unit;
  const std::map<char, double> units{{'T', 1e12}, {'G', 1e9},  {'M', 1e6},
                                     {'K', 1e3},  {'m', 1e-3}, {'u', 1e-6}};
  const auto found = unit.size() > 0 ? units.find(unit[0]) : units.end();
  return found != units.end() && !unit.starts_with("MACs") ? number * found->second : number;
}

constexpr const char* kOn =
    " --steps 3 --set dstrain.model.n_layer=2"
    " --set flops_profiler.enabled=true";

TEST_CASE("flops_profiler reports one step to the log, and the run's weights stay") {
  const RunFolder plain, folder;
  log_of(plain, "--num_gpus 1 --steps 3 --set dstrain.model.n_layer=2");
  const std::string text = log_of(folder, std::string("--num_gpus 1") + kOn);
  CAPTURE(text);
  CHECK(text.find("DeepSpeed Flops Profiler") != std::string::npos);
  CHECK(text.find("DeepSpeed Flops Profiler") == text.rfind("DeepSpeed Flops Profiler"));
  CHECK(text.find("Profile Summary at step 1:") != std::string::npos);
  CHECK(text.find("  (blocks): ModuleList(") != std::string::npos);
  // Times of that step alone.
  CHECK(text.find("time (ms) | fwd: ") != std::string::npos);
  CHECK(text.find("time (ms) | fwd: ") == text.rfind("time (ms) | fwd: "));
  CHECK(plain.read("out/model.safetensors") == folder.read("out/model.safetensors"));
  const Summary summary = summary_of(text);
  CHECK(summary.at("world size") == "1");
  CHECK(summary.at("micro-batches per step") == "4");
  for (const char* time : {"fwd latency", "bwd latency", "step latency", "iter latency"})
    CHECK(number_of(summary.at(time)) > 0);
  CHECK(number_of(summary.at("fwd latency")) < number_of(summary.at("iter latency")));
}

TEST_CASE("flops_profiler: the model's work does not depend on stages of ZeRO and pipelines") {
  const RunFolder one, three, pipeline;
  const Summary alone = summary_of(log_of(one, std::string("--num_gpus 1") + kOn));
  const Summary sharded =
      summary_of(log_of(three, std::string("--num_gpus 2 --set zero_optimization.stage=3") + kOn));
  const std::string text =
      log_of(pipeline, std::string("--num_gpus 2 --pipeline_num_stages 2") + kOn);
  const Summary piped = summary_of(text);
  CAPTURE(text);
  constexpr const char* flops = "fwd flops of model = fwd flops per GPU * mp_size";
  constexpr const char* parameters = "params of model = params per GPU * mp_size";
  CHECK(alone.at("fwd flops per GPU") == alone.at(flops));
  CHECK(sharded.at(flops) == alone.at(flops));
  CHECK(sharded.at(parameters) == alone.at(parameters));
  CHECK(sharded.at("data parallel size") == "2");
  CHECK(2 * number_of(sharded.at("params held per GPU by ZeRO stage 3")) ==
        Approx(number_of(sharded.at(parameters))).epsilon(0.01));
  CHECK(piped.at("fwd flops of model") == alone.at(flops));
  CHECK(piped.at("params of model") == alone.at(parameters));
  CHECK(piped.at("pipeline parallel size") == "2");
  const double part = number_of(piped.at("fwd flops per GPU"));
  CHECK(part > 0);
  CHECK(part < number_of(alone.at(flops)));
}

TEST_CASE("flops_profiler: ranks that divide layers and samples have the model's work together") {
  const RunFolder one;
  const Summary alone = summary_of(log_of(one, std::string("--num_gpus 1") + kOn));
  for (const char* layout :
       {"--num_gpus 2 --tensor_parallel_size 2", "--num_gpus 2 --sequence_parallel_size 2"}) {
    const RunFolder divided;
    const std::string text = log_of(divided, layout + std::string(kOn));
    CAPTURE(text);
    const Summary summary = summary_of(text);
    CHECK(summary.at("fwd flops of model") ==
          alone.at("fwd flops of model = fwd flops per GPU * mp_size"));
    CHECK(summary.at("params of model") == alone.at("params of model = params per GPU * mp_size"));
    CHECK(2 * number_of(summary.at("fwd flops per GPU")) ==
          Approx(number_of(summary.at("fwd flops of model"))).epsilon(0.05));
  }
}

TEST_CASE("flops_profiler writes its report to a file, and says where no step is profiled") {
  const RunFolder folder;
  const std::string text = log_of(
      folder, std::string("--num_gpus 2") + kOn +
                  " --set flops_profiler.output_file=new/profile.txt"
                  " --set flops_profiler.profile_step=0 --set flops_profiler.detailed=false");
  CHECK(text.find("DeepSpeed Flops Profiler") == std::string::npos);
  CHECK(text.find("the profile of step 1 is in new/profile.txt") != std::string::npos);
  const std::string report = folder.read("new/profile.txt");
  CHECK(report.find("Profile Summary at step 0:") != std::string::npos);
  CHECK(report.find("Detailed") == std::string::npos);
  CHECK(summary_of(report).at("world size") == "2");
  const RunFolder late;
  CHECK(log_of(late, std::string("--num_gpus 1") + kOn + " --set flops_profiler.profile_step=3")
            .find("warning: flops_profiler.profile_step 3: there is no report, as step 4 is not "
                  "among the steps 1 to 3 of this run") != std::string::npos);
  folder.write("file", "");
  RunningProgram program = folder.train(
      "--num_gpus 1 --steps 2 --overwrite --set flops_profiler.enabled=true"
      " --set flops_profiler.output_file=file/below/profile.txt");
  CHECK(program.wait(60) != 0);
  CHECK(program.text().find("flops_profiler.output_file: cannot make the directory file/below") !=
        std::string::npos);
}

TEST_CASE("flops_profiler: monitors have the times of the profiled step alone") {
  const RunFolder folder;
  log_of(folder, std::string("--num_gpus 1") + kOn +
                     " --set csv_monitor.enabled=true --set csv_monitor.output_path=csv");
  const std::string times =
      folder.read("csv/DeepSpeedJobName/Train_Samples_elapsed_time_ms_forward.csv");
  CHECK(times.starts_with("step,elapsed_time_ms_forward\n8,"));  // after two steps of 4 samples
  CHECK(lines_of(times) == 2);
}

TEST_CASE("memory_breakdown: planned before the first step, measured after it, with every rank") {
  const RunFolder folder, plain;
  const std::string text = log_of(folder,
                                  "--num_gpus 2 --steps 3 --set memory_breakdown=true"
                                  " --set zero_optimization.stage=1");
  CAPTURE(text);
  const size_t planned = text.find("memory of a rank"), first = text.find("step=1 "),
               measured = text.find("memory of a rank", planned + 1), second = text.find("step=2 ");
  REQUIRE(measured != std::string::npos);
  CHECK(planned < first);
  CHECK(first < measured);
  CHECK(measured < second);
  CHECK(text.find("memory of a rank", measured + 1) == std::string::npos);
  CHECK(text.find("process: largest resident set", planned) > measured);
  CHECK(log_of(plain, "--num_gpus 1 --steps 1").find("memory of a rank") == std::string::npos);
}

}  // namespace
}  // namespace dstrain
