// The partition by memory divides the bytes that the plans need.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

struct Peaks {
  double most = 0, mean = 0;
};

Peaks peaks_of(const Job& job) {
  Peaks peaks;
  for (const RankPlan& stage : draft_stage_plans(job, 0, fake_inputs())) {
    const auto bytes = static_cast<double>(stage.memory.total());
    peaks.most = std::max(peaks.most, bytes);
    peaks.mean += bytes / job.pipeline.stages;
  }
  return peaks;
}

Job pipeline_job(const ModelConfig& model, int stages) {
  Job job;
  job.model = model;
  job.ranks = job.pipeline.stages = stages;
  job.batch = {8, 1, 8};
  job.pipeline.partition = "memory";
  return job;
}

const ModelConfig kGptLite = GptLite{.n_layer = 12,
                                     .n_embd = 768,
                                     .n_head = 12,
                                     .block_size = 2048,
                                     .dropout = 0.1,
                                     .vocab_size = 65};

}  // namespace

TEST_CASE(
    "partition by memory: no stage of the deep benchmark model needs much more than the mean") {
  const ModelConfig deep =
      BenchmarkModel{.n_layer = 256, .in_size = 256, .hidden_size = 256, .out_size = 256};
  for (const int stages : {2, 4, 8}) {
    const Peaks peaks = peaks_of(pipeline_job(deep, stages));
    CAPTURE(stages);
    CHECK(peaks.most / peaks.mean <= 1.10);
  }
}

TEST_CASE("partition by memory: no stage of GPT-lite needs much more than the mean") {
  for (const int stages : {2, 4}) {
    Job job = pipeline_job(kGptLite, stages);
    CAPTURE(stages);
    const Peaks peaks = peaks_of(job);
    CHECK(peaks.most / peaks.mean <= 1.10);
    job.recompute = {RecomputeMode::interval, 1};
    const Peaks recomputed = peaks_of(job);
    CHECK(recomputed.most / recomputed.mean <= 1.10);
  }
}

TEST_CASE("partition by memory: cuts within blocks make GPT-lite's largest stage smaller") {
  Job job = pipeline_job(kGptLite, 4);
  const double most = peaks_of(job).most;
  // Every division between layers in which the parts do not shrink from the first stage to the last.
  job.pipeline.partition = "list";
  for (int64_t a = 1; a <= 4; ++a)
    for (int64_t b = a + 1; b <= 9; ++b)
      for (int64_t c = b + 1; c <= 13; ++c) {
        job.pipeline.first_layers = {0, a, b, c};
        CAPTURE(a, b, c);
        CHECK(peaks_of(job).most >= 1.02 * most);
      }
}

TEST_CASE("partition by memory: eight stages of GPT-lite, where half a block is most of a stage") {
  const Peaks peaks = peaks_of(pipeline_job(kGptLite, 8));
  CHECK(peaks.most / peaks.mean <= 1.30);
}
