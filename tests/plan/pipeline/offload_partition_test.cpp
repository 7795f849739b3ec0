// The partition by memory of jobs that offload, against the best of all divisions.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <random>
#include <tuple>

#include "tests/plan/plans.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

int64_t largest_stage(const Job& job) {
  int64_t largest = 0;
  for (const RankPlan& stage : draft_stage_plans(job, 0, fake_inputs()))
    largest = std::max(largest, stage.memory.total());
  return largest;
}

// Returns the largest stage's bytes with the division of which it is smallest, of all divisions into as many parts as
// stages.
int64_t best_largest_stage(const Job& job) {
  const int stages = job.pipeline.stages;
  const int64_t sublayers = 2 * job.model.integer("n_layer") + 2;
  const StageBytes planned = stage_bytes(job, fake_inputs());
  std::map<std::tuple<int, int64_t, int64_t>, int64_t> known;
  // The smallest maximum of the stages from `stage` on, of which the first one begins with `begin`.
  const std::function<int64_t(std::vector<int64_t>)> best = [&](std::vector<int64_t> first) {
    const int stage = static_cast<int>(first.size()) - 1;
    const int64_t begin = first.back();
    int64_t smallest = INT64_MAX;
    for (int64_t end = stage + 1 == stages ? sublayers : begin + 1;
         end <= sublayers - (stages - stage - 1); ++end) {
      first.resize(static_cast<size_t>(stage) + 1);
      first.push_back(end);
      const auto [it, fresh] = known.try_emplace({stage, begin, end});
      if (fresh) {
        std::vector<int64_t> whole = first;  // parts behind: as many as there must be
        for (int64_t rest = stages - stage - 2; rest >= 0; --rest)
          whole.push_back(sublayers - rest);
        it->second = planned(whole, stage);
      }
      smallest =
          std::min(smallest, stage + 1 == stages ? it->second : std::max(it->second, best(first)));
    }
    return smallest;
  };
  return best({0});
}

Job offload_job(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto one_of = [&](std::initializer_list<int> values) {
    return *(values.begin() + below(static_cast<int>(values.size())));
  };
  Job job;
  const int stages = 2 + below(2), data_ranks = 1 + below(2);
  job.model = GptLite{.n_layer = 3 + below(stages == 2 ? 6 : 3),
                      .n_embd = one_of({32, 64, 128}),
                      .n_head = 2,
                      .block_size = one_of({16, 64, 256}),
                      .dropout = below(2) * 0.1,
                      .vocab_size = one_of({65, 1000, 5000, 20000})};
  job.pipeline.stages = stages;
  job.pipeline.partition = "memory";
  job.pipeline.schedule = below(2) == 0 ? PipelineSchedule::gpipe : PipelineSchedule::one_f_one_b;
  job.ranks = stages * data_ranks;
  const int micro_batch = 1 + below(2), accumulation = 1 + below(6);
  job.batch = {micro_batch * accumulation * data_ranks, micro_batch, accumulation};
  job.zero_stage = below(4);
  job.reduce = job.zero_stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
  if (below(2) == 0) job.dtype = job.wire_dtype = DType::bf16;
  job.gather = {.param_persistence = 0, .max_reuse_distance = below(2) * 1000000};
  const int what = below(3);  // optimizer, activations, or both
  if (what != 1) {
    job.offload.optimizer = below(3) == 0 ? OffloadTo::nvme : OffloadTo::cpu;
    job.offload.optimizer_on = below(3) == 0 ? UpdateOn::device : UpdateOn::host;
    if (job.zero_stage == 3 && below(2) == 0) job.offload.parameters = OffloadTo::cpu;
    if (below(4) == 0) job.offload.ratio = 0.5;
  }
  if (what != 0) job.offload.activations = OffloadTo::cpu;
  if (below(3) == 0) job.recompute = {RecomputeMode::interval, 1};
  if (below(4) == 0) job.eval_interval = 1;
  return job;
}

}  // namespace

TEST_CASE(
    "partition by memory: with offload the largest stage is within 3 % of the best division's") {
  std::mt19937 random(7);
  Sample sample(8);
  for (int i = 0; i < 50; ++i) {
    const Job job = offload_job(random);
    if (!sample.takes()) continue;
    const int64_t best = best_largest_stage(job), largest = largest_stage(job);
    CAPTURE(i, job.pipeline.stages, job.model.integer("n_layer"), job.model.integer("vocab_size"),
            job.zero_stage, best);
    CHECK(static_cast<double>(largest) <= 1.03 * static_cast<double>(best));
  }
}
