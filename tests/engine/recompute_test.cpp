// Recompute never changes a number: steps of training with and without it, bit for bit.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr int kSteps = 4;

// The results of a run of a few steps, as bits.
struct Trace {
  std::vector<double> losses;
  std::vector<float> norms;
  std::vector<std::vector<std::byte>> weights;
  size_t instructions = 0;
};

Trace run(Job job, RecomputeConfig recompute) {
  job.recompute = recompute;
  const RandomDataset data(classes_of(job.model));
  TestRank test_rank(job, data);
  Trace trace;
  trace.instructions = test_rank.plans.train.program.instructions.size();
  for (int step = 0; step < kSteps; ++step) {
    StepState& state = test_rank.state;
    state.step = step + 1;
    state.lr = 1e-2f;
    state.first_sample = step * job.batch.train_batch;
    StepContext context{.state = &state, .batch = {&data, Split::train, state.first_sample}};
    test_rank.executor.run(context);
    trace.losses.push_back(state.loss_sum);
    trace.norms.push_back(state.grad_norm);
  }
  for (const Parameter& p : test_rank.plans.train.program.parameters) {
    const Tensor t = test_rank.model.master(p).values;
    std::vector<std::byte>& bits = trace.weights.emplace_back(static_cast<size_t>(t.bytes()));
    std::memcpy(bits.data(), t.data, bits.size());
  }
  return trace;
}

void check_equal(const Job& job) {
  const Trace plain = run(job, {});
  CHECK(plain.losses.back() != plain.losses.front());
  for (const RecomputeConfig recompute : {RecomputeConfig{RecomputeMode::interval, 1},
                                          {RecomputeMode::interval, 2},
                                          {RecomputeMode::selective, 0}}) {
    CAPTURE(static_cast<int>(recompute.mode), recompute.interval);
    const Trace again = run(job, recompute);
    if (job.model.family().reads_tokens()) CHECK(again.instructions > plain.instructions);
    CHECK(again.losses == plain.losses);
    CHECK(again.norms == plain.norms);
    CHECK(again.weights == plain.weights);
  }
}

Job job_of(DType dtype, int64_t accumulation) {
  Job job;
  job.dtype = job.wire_dtype = dtype;
  job.batch = {2 * accumulation, 2, accumulation};
  return job;
}

}  // namespace

TEST_CASE("GPT-lite with dropout trains to the same bits with and without recompute") {
  const auto [dtype, accumulation] = GENERATE(table<DType, int64_t>(
      {{DType::f32, 1}, {DType::f32, 2}, {DType::bf16, 1}, {DType::bf16, 2}}));
  const bool gelu = GENERATE(false, true), tied = GENERATE(false, true);
  CAPTURE(name_of(dtype), accumulation, gelu, tied);
  Job job = job_of(dtype, accumulation);
  job.model = GptLite{.n_layer = 5,
                      .n_embd = 32,
                      .n_head = 4,
                      .block_size = 12,
                      .dropout = 0.1,
                      .gelu = gelu,
                      .tied_head = tied,
                      .vocab_size = 29};
  check_equal(job);
}

TEST_CASE("the benchmark model trains to the same bits with and without recompute") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const int64_t accumulation = GENERATE(1, 2);
  CAPTURE(name_of(dtype), accumulation);
  Job job = job_of(dtype, accumulation);
  job.model = BenchmarkModel{.n_layer = 5, .in_size = 24, .hidden_size = 40, .out_size = 7};
  check_equal(job);
}

TEST_CASE("gradients summed after every micro-batch are the same bits with and without recompute") {
  Job job = job_of(DType::bf16, 2);
  job.reduce = ReduceMode::micro_batch;
  job.model = GptLite{.n_layer = 3, .n_embd = 32, .n_head = 2, .block_size = 12, .vocab_size = 29};
  check_equal(job);
}
