// Parameters that travel quantized: what ranks compute with, bytes, and what changes no bit. mpirun starts this program
// on 2 to 4 ranks.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "launcher/implementations.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/ir/quantized.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

// A model of odd sizes; fp16 begins with skipped steps.
Job codec_job(int ranks, DType dtype, int64_t accumulation = 2) {
  Job job = pipeline_job(dtype, ranks, 1, accumulation);
  job.zero_stage = 3;
  job.reduce = ReduceMode::micro_batch;
  job.gradient_clipping = 0.5;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.quantize.weights = true;
  return job;
}

std::vector<int> shard_sizes(int ranks) {
  std::vector<int> sizes;
  for (int size = 2; size < ranks; ++size)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes;
}

// Rounds values to those that travel, by the definition.
template <class T, class Narrow>
void round_to_int8(T* x, int64_t n, const Narrow& narrow) {
  for (int64_t first = 0; first < n; first += kQuantizedBlock) {
    const int64_t end = std::min(n, first + kQuantizedBlock);
    float largest = 0;
    for (int64_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(to_float(x[i])));
    float scale = largest / 127.0f;
    if (scale < std::numeric_limits<float>::min()) scale = 0;
    for (int64_t i = first; i < end; ++i)
      x[i] = narrow(scale > 0 ? std::nearbyint(to_float(x[i]) * (1.0f / scale)) * scale : 0.0f);
  }
}

void round_to_int8(const Tensor& slice) {
  if (slice.dtype == DType::bf16)
    round_to_int8(slice.as<bf16>(), slice.elements(), [](float x) { return to_bf16(x); });
  else
    round_to_int8(slice.as<float>(), slice.elements(), [](float x) { return x; });
}

// Runs the first step. `rounded`: of parameters that were rounded before, else of those that the job quantizes.
std::pair<double, float> first_step(const Job& job, const Dataset& data, Communicator& world,
                                    bool rounded) {
  RunContext context{implementations()};
  context.comm = &world;
  Trainer trainer(job, data, context, make_backend(implementations(), job.device));
  trainer.load();
  if (rounded) {
    const Program& program = trainer.plan().program;
    for (const Unit& unit : program.units)
      round_to_int8(trainer.arenas().tensor(trainer.plan(), program.find("params:" + unit.name)));
    std::vector<double> all(static_cast<size_t>(world.size()));
    world.gather_values(std::vector{0.0}, all);  // peers read the slices
  }
  trainer.step();
  return {trainer.state().loss_sum, trainer.state().grad_norm};
}

}  // namespace

TEST_CASE("every rank computes with the values that travel, and keeps its own") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = codec_job(world->size(), dtype);
    const auto quantized = first_step(job, data, *world, false);
    job.quantize = {};
    const auto plain = first_step(job, data, *world, false);
    CHECK(first_step(job, data, *world, true) == quantized);
    CHECK(plain != quantized);
    CHECK(quantized.first == Approx(plain.first).epsilon(0.01));
    // Nothing is learned: the weights are the ones that the run began with.
    job.optimizer.lr = 0;
    const RunResult before = run_steps(job, data, *world, 2);
    job.quantize.weights = true;
    CHECK(run_steps(job, data, *world, 2).weights == before.weights);
  }
}

TEST_CASE("quantized weights: neither shards nor what runs beside computation change a bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = codec_job(world->size(), dtype);
      job.reduce = reduce;
      const RunResult expected = run_steps(job, data, *world, kSteps);
      CHECK(expected.sent_per_step == expected.planned_to_send);
      std::vector<int> sizes = shard_sizes(world->size());
      sizes.push_back(0);
      for (const int size : sizes)
        for (const bool overlap : {false, true})
          for (const int64_t reuse : {int64_t{0}, int64_t{5000}, int64_t{1'000'000'000}}) {
            if (!sample.takes()) continue;
            job.shards.ranks = size;
            job.overlap_comm = overlap;
            job.gather.max_reuse_distance = reuse;
            job.recompute = {overlap ? RecomputeMode::interval : RecomputeMode::none, 1};
            INFO(describe(job));
            const RunResult result = run_steps(job, data, *world, kSteps);
            CHECK(difference(expected, result, *world) == "");
            CHECK(result.sent_per_step == result.planned_to_send);
          }
    }
}

TEST_CASE(
    "quantized weights: the same bits with parameters in the host's memory, and in a pipeline") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Job job = codec_job(world->size(), DType::bf16);
  const RunResult expected = run_steps(job, data, *world, kSteps);
  job.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
  if (world->size() != 4) return;
  job = codec_job(2, DType::bf16, 4);
  job.ranks = 4;
  job.pipeline.stages = 2;
  compare(without_pipeline(job, data, *world), job, data, *world);
}
