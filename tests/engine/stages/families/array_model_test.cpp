// A model whose inputs are arrays of files has the same bits at every stage. mpirun starts this program.
#include "tests/support/array_model.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "runtime/core/philox.h"
#include "runtime/data/open_dataset.h"
#include "runtime/plan/build_model.h"
#include "tests/data/arrays/array_files.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

constexpr int kArraySteps = 12;
constexpr int64_t kRows = 50;

// Samples whose class is where the largest of five of the features is.
std::string rows_of_classes() {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = x.size();
    for (int64_t j = 0; j < 12; ++j)
      x.push_back(static_cast<float>(mix64(static_cast<uint64_t>(12 * i + j)) >> 40) * 0x1p-23f -
                  1);
    y.push_back(std::max_element(x.begin() + static_cast<int64_t>(row),
                                 x.begin() + static_cast<int64_t>(row) + kArrayClasses) -
                (x.begin() + static_cast<int64_t>(row)));
  }
  return safetensors(
      {{"x", "F32", {kRows, 3, 4}, bytes_of_values(x)}, {"y", "I64", {kRows}, bytes_of_values(y)}});
}

Job classes_job(const std::string& path, DType dtype, int ranks) {
  Job job;
  job.model = ModelConfig(array_family());
  job.data.paths = {path};
  job.data.format = DataFormat::arrays;
  job.data.val_fraction = 0.2;
  job.ranks = ranks;
  job.batch = {8, 8 / ranks / 2, 2};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.lr = 0.01;
  return job;
}

// Trains and returns the last validation's loss in the metrics.
double validation_of(Job job, Communicator& comm, const std::string& output) {
  job.output = output;
  const std::unique_ptr<Dataset> data = open_dataset(job);
  RunContext context{implementations()};
  context.comm = &comm;
  train(job, *data, context);
  comm.barrier();
  std::istringstream lines(bytes_of_file(output + "/metrics.jsonl"));
  double loss = -1;
  for (std::string line; std::getline(lines, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("val_loss"))
      loss = json["val_loss"].get<double>();
  return loss;
}

}  // namespace

TEST_CASE("a model of arrays learns, with the same bits at every stage") {
  const auto comm = make_communicator();
  Communicator& world = *comm;
  const TempDir dir;
  const std::string path = dir.write("rows.safetensors", rows_of_classes());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = classes_job(path, dtype, world.size());
    const std::unique_ptr<Dataset> data = open_dataset(job);
    const RunResult expected = run_steps(job, *data, world, kArraySteps);
    CHECK(expected.loss.back() < 0.9 * expected.loss.front());
    for (const int stage : {0, 1, 2, 3}) {
      job.zero_stage = stage;
      job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
      INFO(describe(job));
      CHECK(difference(expected, run_steps(job, *data, world, kArraySteps, 2), world) == "");
    }
    SelfComm self;
    const Job one = classes_job(path, dtype, 1);
    const RunResult alone = run_steps(one, *data, self, kArraySteps);
    // The ranks together have the samples of one.
    if (dtype == DType::f32)
      CHECK(expected.loss.front() == Approx(alone.loss.front()).epsilon(1e-6));
    for (size_t i = 0; i < alone.loss.size(); ++i)
      CHECK(expected.loss[i] == Approx(alone.loss[i]).epsilon(dtype == DType::f32 ? 1e-5 : 2e-2));
  }
}

TEST_CASE("a validation of arrays takes whole micro-batches, on any number of ranks") {
  const auto comm = make_communicator();
  const TempDir dir;
  const std::string path = dir.write("rows.safetensors", rows_of_classes());
  const auto job_of = [&](int ranks, int64_t micro) {
    Job job = classes_job(path, DType::f32, ranks);
    job.steps = 0;
    job.batch = {micro * ranks, micro, 1};
    return job;
  };
  SelfComm self;
  // Micro-batches of four leave out two of the ten samples for validation.
  const double alone = validation_of(job_of(1, 4), self, dir / "alone");
  const double ranks = validation_of(job_of(comm->size(), 4), *comm, dir / "ranks");
  if (comm->rank() == 0) CHECK(ranks == alone);
  Job eight = job_of(1, 1);
  eight.eval_samples = 8;
  CHECK(validation_of(eight, self, dir / "eight") == Approx(alone).epsilon(1e-6));
  eight.eval_samples = 10;
  CHECK(validation_of(eight, self, dir / "all") != Approx(alone).epsilon(1e-6));
  CHECK(validation_of(job_of(1, 16), self, dir / "none") == -1);
}

TEST_CASE("losses of a model of arrays are means over samples") {
  ModelFamily family = array_family();
  family.build = [](Builder& b, const ModelConfig&) {
    b.unit("all");
    const BufferId x = b.input("x", InputRole::array, DType::f32, {3, 4});
    const BufferId y = b.input("y", InputRole::array, DType::i32, {});
    b.cross_entropy(b.linear(x, b.parameter("w", {5, 4}, Init::normal), kNone, Activation::none),
                    y);
  };
  Program program;
  Builder builder(program, {.training = false, .checked = false});
  CHECK_THROWS_WITH(build_model(builder, ModelConfig(family)),
                    Catch::Contains("reads arrays, whose targets nobody counts"));
}

}  // namespace dstrain
