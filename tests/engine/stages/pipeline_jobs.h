// Runs with and without a pipeline, which must be equal bit for bit.
#pragma once

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/config/pipeline_schedule.h"
#include "runtime/data/generated_dataset.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/divide.h"
#include "runtime/plan/passes/passes.h"
#include "tests/engine/stages/part_world.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

namespace dstrain {

inline constexpr int kSteps = 10;

// A job of 5 layers, with the embedding and the head, on `data_ranks` x `stages` ranks.
inline Job pipeline_job(DType dtype, int data_ranks, int stages, int64_t micro_batches) {
  Job job;
  job.ranks = data_ranks * stages;
  job.pipeline.stages = stages;
  job.model = GptLite{
      .n_layer = 3, .n_embd = 30, .n_head = 2, .block_size = 7, .dropout = 0.1, .vocab_size = 13};
  job.batch = {micro_batches * 2 * data_ranks, 2, micro_batches};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*.bias", "*ln*"};
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p24, .window = 100, .hysteresis = 1};
  }
  return job;
}

// Runs the job without a pipeline on each group of as many consecutive ranks as have the same part of the model.
inline RunResult without_pipeline(Job job, const Dataset& data, Communicator& world) {
  const int ranks = job.data_ranks();
  job.pipeline = {};
  job.ranks = ranks;
  std::vector<int> group(static_cast<size_t>(ranks));
  std::iota(group.begin(), group.end(), world.rank() / ranks * ranks);
  PartWorld part(world, group);
  return run_steps(job, data, part, kSteps);
}

// Returns whether the job's pipeline cuts a layer between its sublayers.
inline bool cuts_a_layer(const Job& job) {
  Program program;
  Builder builder(program, {.dtype = job.dtype, .batch = job.batch.micro_batch});
  build_model(builder, job.model);
  backward(program);
  const std::vector<int64_t> first = divide_model(program, job, rates_of(job.device));
  for (size_t part = 1; part + 1 < first.size(); ++part) {
    const auto at = static_cast<size_t>(first[part]);
    if (program.sublayers[at].layer == program.sublayers[at - 1].layer) return true;
  }
  return false;
}

// Every number of stages but one that divides the ranks.
inline std::vector<int> stages_on(const Communicator& world) {
  std::vector<int> list;
  for (int stages = 2; stages <= world.size(); ++stages)
    if (world.size() % stages == 0) list.push_back(stages);
  return list;
}

// Checks that the job, with its pipeline, gives the expected results and sends what its plan says.
inline void compare(const RunResult& expected, const Job& job, const Dataset& data,
                    Communicator& world) {
  RunResult wanted = expected;
  if (world.rank() != 0) {  // rank 0 collects them
    wanted.weights.clear();
    wanted.buffers.clear();
  }
  INFO(describe(job) << ", " << job.pipeline.stages << " stages x " << job.pipeline.virtual_stages
                     << ", schedule " << schedule_name(job.pipeline.schedule));
  const RunResult result = run_steps(job, data, world, kSteps);
  CHECK(difference(wanted, result, world) == "");
  CHECK(result.sent_per_step == result.planned_to_send);
}

}  // namespace dstrain
