// A step whose batch has no target changes nothing but the counters of steps and samples: the run goes on as one whose
// data lack these samples, bit for bit. The ranks are threads of the test.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/engine/shared_world.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

constexpr int kSteps = 4, kGap = 1;  // the gap is the batch of the second step

// Random samples of which those of places [begin, end) have no targets, or are not there.
class GappedDataset : public Dataset {
 public:
  enum class Gap { without_targets, left_out };
  GappedDataset(int64_t vocabulary, Gap gap, int64_t begin, int64_t end)
      : data_(vocabulary, 0.3), gap_(gap), begin_(begin), end_(end) {}
  int64_t samples(Split split) const override { return data_.samples(split); }
  const Vocabulary& vocabulary() const override { return data_.vocabulary(); }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (int64_t i = 0; i < count; ++i) {
      std::vector<InputTensor> one;
      for (const InputTensor& input : inputs) {
        const Tensor& all = input.tensor;
        one.push_back({input.name,
                       input.role,
                       {all.as<std::byte>() + i * (all.bytes() / count),
                        {all.elements() / count},
                        all.dtype}});
      }
      const int64_t place = first + i;
      const bool behind = gap_ == Gap::left_out && place >= begin_;
      data_.read(split, place + (behind ? end_ - begin_ : 0), 1, one);
      if (gap_ == Gap::left_out || place < begin_ || place >= end_) continue;
      for (const InputTensor& input : one)
        if (input.role == InputRole::labels)
          std::fill_n(input.tensor.as<int32_t>(), input.tensor.elements(), -1);
    }
  }

 private:
  RandomDataset data_;
  Gap gap_;
  int64_t begin_, end_;
};

// Without dropout, whose masks depend on the number of the sample.
Job job_of(int data_ranks, int stages, int zero_stage, DType dtype) {
  Job job;
  job.ranks = data_ranks * stages;
  job.pipeline.stages = stages;
  job.model = GptLite{
      .n_layer = 4, .n_embd = 8, .n_head = 2, .block_size = 4, .dropout = 0, .vocab_size = 8};
  job.batch = {4L * data_ranks, 2, 2};
  job.zero_stage = zero_stage;
  job.reduce = usual_reduce(zero_stage);
  job.dtype = job.wire_dtype = dtype;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.optimizer.weight_decay = 0.1;
  job.max_skipped_steps = 1;
  if (dtype == DType::f16) {
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 256, .window = 1, .hysteresis = 1, .minimum = 1};
  }
  return job;
}

// Returns the results of all ranks, which must be as many threads as the job has ranks.
std::vector<RunResult> run_all(const Job& job, const Dataset& data, int steps) {
  const RankBoard board = board_of(job.ranks);
  std::vector<RunResult> results(static_cast<size_t>(job.ranks));
  std::vector<std::string> wrong(results.size());
  run_ranks(job.ranks, [&](int rank) {
    const auto world = join_board(board, rank);
    try {
      results[static_cast<size_t>(rank)] = run_steps(job, data, *world, steps);
      world->finish();
    } catch (const std::exception& error) {
      wrong[static_cast<size_t>(rank)] = error.what();
      world->abort(error.what());
    }
  });
  for (const std::string& text : wrong) CHECK(text == "");
  return results;
}

template <class T>
std::vector<T> without_gap(std::vector<T> of_steps) {
  if (std::ssize(of_steps) > kGap) of_steps.erase(of_steps.begin() + kGap);
  return of_steps;
}

// Checks that the job skips the step of the gap on every rank, and else is the run without these samples.
void check_gap(const Job& job) {
  INFO(describe(job) << ", " << job.pipeline.stages << " stages");
  const int64_t batch = job.batch.train_batch, begin = kGap * batch, end = begin + batch;
  const GappedDataset gap(8, GappedDataset::Gap::without_targets, begin, end),
      closed(8, GappedDataset::Gap::left_out, begin, end);
  const std::vector<RunResult> skipping = run_all(job, gap, kSteps),
                               plain = run_all(job, closed, kSteps - 1);
  for (size_t rank = 0; rank < plain.size(); ++rank) {
    const RunResult &a = skipping[rank], &b = plain[rank];
    CHECK(a.skipped == std::vector<int>{0, 1, 0, 0});
    CHECK(a.loss[kGap] == 0);
    CHECK(a.norm[kGap] == 0);
    CHECK(a.scale[kGap] == a.scale[kGap + 1]);
    CHECK(without_gap(a.loss) == b.loss);
    CHECK(without_gap(a.norm) == b.norm);
    CHECK(without_gap(a.scale) == b.scale);
    CHECK(a.weights == b.weights);
  }
  CHECK(!plain[0].weights.empty());
}

TEST_CASE("a step without targets is skipped at every stage, in every dtype and in a pipeline") {
  Sample sample(8);
  for (const int data_ranks : {1, 2, 3})
    for (const int stages : {1, 2})
      for (const int zero_stage : {0, 1, 2, 3})
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
          if (data_ranks == 1 && zero_stage > 0) continue;
          if (sample.takes()) check_gap(job_of(data_ranks, stages, zero_stage, dtype));
        }
}

TEST_CASE("a step without targets is skipped where the optimizer is offloaded, or is another one") {
  const TempDir drive;
  for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme})
    for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::muon}) {
      Job job = job_of(2, 1, 2, DType::f32);
      job.offload.optimizer = to;
      job.offload.nvme_paths = {drive.path()};
      job.optimizer.kind = kind;
      check_gap(job);
    }
}

TEST_CASE("where one micro-batch or one rank has targets the step counts, at every stage alike") {
  for (const DType dtype : {DType::f32, DType::f16}) {
    Job job = job_of(2, 1, 0, dtype);
    // Micro-batches of 2 samples: of the second step's, the first of both ranks, or all but the last one of rank 1.
    for (const int64_t last : {4, 6}) {
      const GappedDataset gap(8, GappedDataset::Gap::without_targets, 8, 8 + last);
      job.zero_stage = 0;
      const RunResult expected = run_all(job, gap, kSteps).front();
      CHECK(expected.skipped == std::vector<int>{0, 0, 0, 0});
      CHECK(expected.loss[kGap] > 0);
      for (const int zero_stage : {1, 2, 3}) {
        job.zero_stage = zero_stage;
        INFO(describe(job));
        const RunResult result = run_all(job, gap, kSteps).front();
        CHECK(result.loss == expected.loss);
        CHECK(result.norm == expected.norm);
        CHECK(result.weights == expected.weights);
      }
    }
  }
}

}  // namespace
}  // namespace dstrain
