// Compares the benchmark model's samples, bit for bit, with an independent implementation of their definition
// (benchmark_samples.py).
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "runtime/data/open_dataset.h"
#include "tests/golden/run_program.h"
#include "tests/support/models.h"

namespace dstrain::golden {
namespace {

using nlohmann::json;

constexpr int64_t kFirstValidationSample = int64_t{1} << 40;

TEST_CASE("the benchmark's samples are the definition's, inputs and labels") {
  const json cases = read_json(Case("benchmark").folder / "samples.json");
  REQUIRE(cases.size() == 3);
  for (const json& golden : cases) {
    Job job;
    job.seed = golden.at("seed");
    const int64_t in_size = golden.at("in_size");
    job.model = BenchmarkModel{.in_size = in_size, .out_size = golden.at("out_size")};
    const std::unique_ptr<Dataset> dataset = open_dataset(job);
    for (const json& sample : golden.at("samples")) {
      const int64_t index = sample.at("index");
      CAPTURE(job.seed, in_size, index);
      std::vector<float> x(static_cast<size_t>(in_size));
      int32_t label = -1;
      const bool validation = index >= kFirstValidationSample;
      const InputTensor batch[] = {
          {"samples", InputRole::features, {x.data(), {1, in_size}, DType::f32}},
          {"targets", InputRole::labels, {&label, {1}, DType::i32}}};
      dataset->read(validation ? Split::validation : Split::train,
                    validation ? index - kFirstValidationSample : index, 1, batch);
      CHECK(label == sample.at("label").get<int32_t>());
      if (sample.contains("x")) CHECK(x == sample.at("x").get<std::vector<float>>());
    }
  }
}

}  // namespace
}  // namespace dstrain::golden
