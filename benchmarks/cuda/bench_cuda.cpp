// Times the kernels of the CUDA library on this machine's GPU and compares each with its lower bound, from the copy
// and multiply rates that are measured in the same run.
//   bench_cuda                       prints a table; with --json FILE also writes it
//   bench_cuda --serve               writes the device and the names of the cases, then answers each line of
//                                    standard input (a case or "probes") with a line of JSON
//   bench_cuda --predict H200        what a step of GPT-2 should take on that machine; needs no GPU, measures nothing
//   bench_cuda --device emulated     small sizes on the emulated device, to test this program
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <regex>

#include "benchmarks/cuda/bench.h"
#include "benchmarks/cuda/predict.h"
#include "runtime/core/error.h"

namespace dstrain::bench {
namespace {

using nlohmann::json;

struct Options {
  std::string device = "cuda";
  std::string cases;
  std::string file;
  std::string predict;
  bool serve = false;
};

json measure(Bench& bench, const Case& c, const Probes& probes) {
  try {
    return case_json(c, bench.time(c), probes);
  } catch (const std::exception& e) {
    return failure_json(c, e.what());
  }
}

void answer(const json& line) {
  std::cout << line.dump() << std::endl;  // flushed, because the reader waits for it
}

void serve(Bench& bench, const Shapes& shapes, const std::vector<Case>& cases) {
  Probes probes = bench.probe(shapes);
  json names = json::array();
  for (const Case& c : cases) names.push_back(c.name);
  answer({{"ready", bench.device_name()}, {"probes", probes_json(probes)}, {"cases", names}});
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "probes") {
      probes = bench.probe(shapes);
      answer(probes_json(probes));
      continue;
    }
    const auto found =
        std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.name == line; });
    if (found == cases.end())
      answer({{"name", line}, {"failed", "there is no such case"}});
    else
      answer(measure(bench, *found, probes));
  }
}

// Prints the table and returns it; its "failed" says whether a case failed.
json table(Bench& bench, const Shapes& shapes, const std::vector<Case>& cases) {
  const Probes probes = bench.probe(shapes);
  fmt::print("{}: copy {:.1f} GB/s, bf16 product {:.1f} TFLOP/s\n{}\n", bench.device_name(),
             probes.bytes_per_second * 1e-9, probes.flops_per_second * 1e-12, table_head());
  json figures = json::array();
  int failed = 0;
  for (const Case& c : cases) {
    figures.push_back(measure(bench, c, probes));
    failed += figures.back().contains("failed") ? 1 : 0;
    fmt::print("{}\n", row_of(figures.back()));
    std::fflush(stdout);
  }
  return {{"device", bench.device_name()},
          {"probes", probes_json(probes)},
          {"kernels", figures},
          {"failed", failed}};
}

int run(const Options& options) {
  if (!options.predict.empty()) {
    fmt::print("{}", prediction_text(machine_named(options.predict)));
    return 0;
  }
  const bool emulated = options.device == "emulated";
  const Shapes shapes = emulated ? tiny_shapes() : gpt2_shapes();
  Bench bench(emulated, emulated ? Effort{2, 0} : Effort{});
  std::vector<Case> cases = cases_of(shapes);
  const std::regex wanted(options.cases);
  std::erase_if(cases, [&](const Case& c) { return !std::regex_search(c.name, wanted); });
  if (options.serve) {
    serve(bench, shapes, cases);
    return 0;
  }
  const json result = table(bench, shapes, cases);
  if (!options.file.empty()) {
    std::ofstream file(options.file);
    file << result.dump(1) << "\n";
    if (!file) fail_run("cannot write {}", options.file);
  }
  return result["failed"] == 0 ? 0 : 2;
}

}  // namespace
}  // namespace dstrain::bench

int main(int argc, char** argv) {
  dstrain::bench::Options options;
  CLI::App app("times the kernels of the CUDA library against what the GPU can copy and multiply");
  app.add_option("--device", options.device, "cuda, or emulated at small sizes")
      ->check(CLI::IsMember({"cuda", "emulated"}));
  app.add_option("--cases", options.cases, "only cases whose name matches this expression");
  app.add_option("--json", options.file, "also write the table to this file");
  app.add_option("--predict", options.predict,
                 "predict the step of GPT-2 on this machine: H100, H200");
  app.add_flag("--serve", options.serve, "measure what standard input names");
  CLI11_PARSE(app, argc, argv);
  try {
    return dstrain::bench::run(options);
  } catch (const dstrain::UserError& e) {
    fmt::print(stderr, "bench_cuda: {}\n", e.what());
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_cuda: {}\n", e.what());
    return 2;
  }
}
