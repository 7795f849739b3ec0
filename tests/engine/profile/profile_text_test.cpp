// The report of flops_profiler as text, from a made-up profile.
#include "runtime/engine/profile/profile_text.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/profile/report_profile.h"

namespace dstrain {
namespace {

ModuleNode made_up(const std::string& name, const std::string& kind, int64_t parameters,
                   double macs, double seconds, std::vector<ModuleNode> children = {}) {
  return {.name = name,
          .kind = kind,
          .parameters = parameters,
          .macs = macs,
          .flops = 2 * macs,
          .seconds = seconds,
          .children = std::move(children)};
}

StepProfile made_up_profile() {
  StepProfile p{.steps_before = 1, .ranks = 4, .data_ranks = 4, .micro_batch = 8};
  ModuleNode blocks = made_up("h", "ModuleList", 3'000'000, 6e9, 0.06,
                              {made_up("0", "Module", 1'000'000, 2e9, 0.04,
                                       {made_up("attn", "Linear", 400'000, 0.5e9, 0.01),
                                        made_up("mlp", "Linear", 600'000, 1.5e9, 0.02)}),
                               made_up("1", "Module", 2'000'000, 4e9, 0.02,
                                       {made_up("attn", "Linear", 1'500'000, 3e9, 0.01),
                                        made_up("mlp", "Linear", 500'000, 1e9, 0.005)})});
  ModuleNode head = made_up("head", "Linear", 0, 2e9, 0.02);
  head.tied = 1'000'000;
  p.model = made_up("lite", "lite", 4'000'000, 8e9, 0.1,
                    {made_up("wte", "Embedding", 1'000'000, 0, 0.01), blocks, head});
  p.model_parameters = p.model.parameters;
  p.model_flops = p.model.flops;
  p.measured = {.forward = 0.1, .backward = 0.25, .update = 0.05, .step = 0.4};
  p.estimated = {.forward = 0.08, .backward = 0.16, .update = 0.04, .step = 0.3};
  return p;
}

// Returns the value of a line of the summary; "" if there is no such line.
std::string value_of(const std::string& text, const std::string& label) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(label + ": ")) {
      std::string value = line.substr(72);
      value.erase(value.find_last_not_of(' ') + 1);
      return value;
    }
  return "";
}

TEST_CASE("profile: numbers have two decimals and DeepSpeed's units") {
  CHECK(parameters_text(124'439'808) == "124.44 M");
  CHECK(parameters_text(1.5e9) == "1.5 B");
  CHECK(parameters_text(12) == "12");
  CHECK(parameters_text(0) == "0");
  CHECK(macs_text(145.8e9) == "145.8 GMACs");
  CHECK(macs_text(0) == "0 MACs");
  CHECK(flops_text(291.648e9) == "291.65 G");
  CHECK(flops_rate_text(1.2345e12) == "1.23 TFLOPS");
  CHECK(flops_rate_text(0) == "0 FLOPS");
  CHECK(seconds_text(1.2) == "1.2 s");
  CHECK(seconds_text(0.0981) == "98.1 ms");
  CHECK(seconds_text(3.4e-6) == "3.4 us");
  CHECK(seconds_text(3.4e-9) == "0 us");
}

TEST_CASE("profile: the summary has DeepSpeed's lines, with estimates beside measured times") {
  const std::string text = profile_text(made_up_profile(), {});
  CHECK(text.starts_with(
      "\n-------------------------- DeepSpeed Flops Profiler --------------------------\n"
      "Profile Summary at step 1:\n"));
  CHECK(text.find("all pairs of queries and keys") != std::string::npos);
  const size_t begin = text.find("world size");
  const size_t end = text.find("\n-----------------------------", begin);
  const auto line = [](const std::string& label, const std::string& value) {
    return (label + ": " + std::string(72 - label.size() - 2, ' ') + value);
  };
  std::istringstream lines(text.substr(begin, end - begin));
  std::vector<std::string> found;
  for (std::string one; std::getline(lines, one);) {
    one.erase(one.find_last_not_of(' ') + 1);
    found.push_back(one);
  }
  CHECK(found == std::vector<std::string>{
                     line("world size", "4"), line("data parallel size", "4"),
                     line("model parallel size", "1"), line("batch size per GPU", "8"),
                     line("params per GPU", "4 M"),
                     line("params of model = params per GPU * mp_size", "4 M"),
                     line("fwd MACs per GPU", "8 GMACs"), line("fwd flops per GPU", "16 G"),
                     line("fwd flops of model = fwd flops per GPU * mp_size", "16 G"),
                     line("fwd latency", "100 ms    (estimated: 80 ms)"),
                     line("fwd FLOPS per GPU = fwd flops per GPU / fwd latency", "160 GFLOPS"),
                     line("bwd latency", "250 ms    (estimated: 160 ms)"),
                     line("bwd FLOPS per GPU = 2 * fwd flops per GPU / bwd latency", "128 GFLOPS"),
                     line("fwd+bwd FLOPS per GPU = 3 * fwd flops per GPU / (fwd+bwd latency)",
                          "137.14 GFLOPS"),
                     line("step latency", "50 ms     (estimated: 40 ms)"),
                     line("iter latency", "400 ms    (estimated: 300 ms)"),
                     line("FLOPS per GPU = 3 * fwd flops per GPU / iter latency", "120 GFLOPS"),
                     line("samples/second", "80")});
}

TEST_CASE("profile: recompute counts in the FLOPs of the backward pass") {
  const std::string text = profile_text(made_up_profile(), {.recompute_fwd_factor = 0.5});
  CHECK(value_of(text, "bwd FLOPS per GPU = 2.5 * fwd flops per GPU / bwd latency") ==
        "160 GFLOPS");
  CHECK(value_of(text, "FLOPS per GPU = 3.5 * fwd flops per GPU / iter latency") == "140 GFLOPS");
}

TEST_CASE("profile: several micro-batches, stages and shards have lines of their own") {
  StepProfile p = made_up_profile();
  p.data_ranks = p.stages = 2;
  p.micro_batches = 3;
  p.model_parameters = 9'000'000;
  p.model_flops = 40e9;
  p.held_parameters = 2'000'000;
  const std::string text = profile_text(p, {});
  CHECK(value_of(text, "pipeline parallel size") == "2");
  CHECK(value_of(text, "micro-batches per step") == "3");
  CHECK(value_of(text, "params held per GPU by ZeRO stage 3") == "2 M");
  CHECK(value_of(text, "params of model") == "9 M");
  CHECK(value_of(text, "fwd flops of model") == "40 G");
  CHECK(value_of(text, "FLOPS per GPU = 3 * 3 * fwd flops per GPU / iter latency") == "360 GFLOPS");
  CHECK(value_of(text, "samples/second") == "120");
}

TEST_CASE("profile: a rank's part of each layer times the ranks is not called the model") {
  StepProfile p = made_up_profile();
  p.data_ranks = 2;
  (GENERATE(false, true) ? p.tensor_ranks : p.sequence_ranks) = 2;
  p.model_parameters = 7'900'000;
  p.model_flops = 32e9;
  const std::string text = profile_text(p, {});
  CHECK(value_of(text, "model parallel size") == std::to_string(p.tensor_ranks));
  CHECK(value_of(text, "sequence parallel size") == (p.sequence_ranks > 1 ? "2" : ""));
  CHECK(value_of(text, "params of model") == "7.9 M");
  CHECK(value_of(text, "fwd flops of model") == "32 G");
}

TEST_CASE("profile: the largest modules of each depth, as many as are asked for") {
  const std::string text = profile_text(made_up_profile(), {.top_modules = 2});
  CHECK(text.find(R"(
----------------------------- Aggregated Profile per GPU -----------------------------
Top 2 modules in terms of params, MACs or fwd latency at different model depths:
depth 0:
    params      - {'lite': '4 M'}
    MACs        - {'lite': '8 GMACs'}
    fwd latency - {'lite': '100 ms'}
depth 1:
    params      - {'h': '3 M', 'wte': '1 M'}
    MACs        - {'h': '6 GMACs', 'head': '2 GMACs'}
    fwd latency - {'h': '60 ms', 'head': '20 ms'}
depth 2:
    params      - {'h.*': '3 M'}
    MACs        - {'h.*': '6 GMACs'}
    fwd latency - {'h.*': '60 ms'}
depth 3:
    params      - {'attn': '1.9 M', 'mlp': '1.1 M'}
    MACs        - {'attn': '3.5 GMACs', 'mlp': '2.5 GMACs'}
    fwd latency - {'mlp': '25 ms', 'attn': '20 ms'}
)") != std::string::npos);
  const std::string shallow = profile_text(made_up_profile(), {.module_depth = 1});
  CHECK(shallow.find("depth 0:") != std::string::npos);
  CHECK(shallow.find("depth 1:") == std::string::npos);
  CHECK(profile_text(made_up_profile(), {.top_modules = 0}).find("params      - {}\n") !=
        std::string::npos);
}

TEST_CASE("profile: the tree has every module with its shares, unless it is not wanted") {
  const std::string text = profile_text(made_up_profile(), {});
  CHECK(text.find("------------------------------ Detailed Profile per GPU "
                  "------------------------------\n") != std::string::npos);
  CHECK(text.ends_with(R"(
lite(
  4 M = 100% Params, 8 GMACs = 100% MACs, 100 ms = 100% latency, 160 GFLOPS
  (wte): Embedding(1 M = 25% Params, 0 MACs = 0% MACs, 10 ms = 10% latency, 0 FLOPS)
  (h): ModuleList(
    3 M = 75% Params, 6 GMACs = 75% MACs, 60 ms = 60% latency, 200 GFLOPS
    (0): Module(
      1 M = 25% Params, 2 GMACs = 25% MACs, 40 ms = 40% latency, 100 GFLOPS
      (attn): Linear(400 K = 10% Params, 500 MMACs = 6.25% MACs, 10 ms = 10% latency, 100 GFLOPS)
      (mlp): Linear(600 K = 15% Params, 1.5 GMACs = 18.75% MACs, 20 ms = 20% latency, 150 GFLOPS)
    )
    (1): Module(
      2 M = 50% Params, 4 GMACs = 50% MACs, 20 ms = 20% latency, 400 GFLOPS
      (attn): Linear(1.5 M = 37.5% Params, 3 GMACs = 37.5% MACs, 10 ms = 10% latency, 600 GFLOPS)
      (mlp): Linear(500 K = 12.5% Params, 1 GMACs = 12.5% MACs, 5 ms = 5% latency, 400 GFLOPS)
    )
  )
  (head): Linear(1 M = 25% Params, 2 GMACs = 25% MACs, 20 ms = 20% latency, 200 GFLOPS)
)
------------------------------------------------------------------------------
)"));
  CHECK(profile_text(made_up_profile(), {.detailed = false}).find("Detailed") == std::string::npos);
}

TEST_CASE("profile: the profiled step follows profile_step others, and a run without it says so") {
  Job job;
  job.steps = 4;
  CHECK_FALSE(is_profiled(job, 2));
  CHECK_FALSE(no_profile_text(job, 0));
  job.flops_profiler.enabled = true;
  CHECK(is_profiled(job, 2));
  CHECK_FALSE(is_profiled(job, 1));
  CHECK_FALSE(is_profiled(job, 3));
  CHECK_FALSE(no_profile_text(job, 0));
  CHECK_FALSE(no_profile_text(job, 1));
  CHECK_FALSE(no_profile_text(job, 4));  // nothing runs
  CHECK(no_profile_text(job, 2) ==
        "flops_profiler.profile_step 1: there is no report, as step 2 is not among the steps 3 to "
        "4 of this run: use 2 to 3");
  job.flops_profiler.profile_step = -1;
  CHECK_FALSE(no_profile_text(job, 0));  // none is wanted
  job.flops_profiler.profile_step = 4;
  CHECK(no_profile_text(job, 0) ==
        "flops_profiler.profile_step 4: there is no report, as step 5 is not among the steps 1 to "
        "4 of this run: use 0 to 3");
}

}  // namespace
}  // namespace dstrain
