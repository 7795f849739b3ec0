// Offloaded optimizers on several ranks and in pipelines give the bits of plain runs. The ranks are threads of the
// test, so that one process, and with it the address sanitizer, sees the memory of all of them.
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

// Slices of some ranks hold matrices alone, so that Muon's second moment is empty there, and the disk has more tensors
// than sorting keeps in order.
Job job_of(int data_ranks, int stages, int zero_stage) {
  Job job;
  job.ranks = data_ranks * stages;
  job.pipeline.stages = stages;
  if (data_ranks == 2)
    job.model = BenchmarkModel{.n_layer = 6, .in_size = 8, .hidden_size = 8, .out_size = 8};
  else
    job.model = GptLite{.n_layer = 6, .n_embd = 8, .n_head = 2, .block_size = 3, .vocab_size = 8};
  job.batch = {2L * data_ranks, 1, 2};
  job.zero_stage = zero_stage;
  job.reduce = usual_reduce(zero_stage);
  job.dtype = job.wire_dtype = zero_stage == 1 ? DType::bf16 : DType::f32;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.optimizer.weight_decay = 0.1;
  return job;
}

// Runs the job as it is and offloaded on threads that are its ranks. Returns what differs, or an error.
std::string compare_offloaded(const Job& plain, const Job& moved) {
  const RandomDataset data(classes_of(plain.model));
  const RankBoard board = board_of(plain.ranks);
  std::vector<std::string> wrong(static_cast<size_t>(plain.ranks));
  run_ranks(plain.ranks, [&](int rank) {
    std::string& text = wrong[static_cast<size_t>(rank)];
    const auto world = join_board(board, rank);
    try {
      const RunResult expected = run_steps(plain, data, *world, 2);
      const RunResult result = run_steps(moved, data, *world, 2);
      text = difference(expected, result, *world);
      if ((result.planned_disk_bytes > 0) != moved.offload.uses_disk() ||
          result.planned_host_bytes == 0)
        text = "nothing is offloaded";
      world->finish();
    } catch (const std::exception& error) {
      text = error.what();
      world->abort(text);
    }
  });
  for (const std::string& text : wrong)
    if (!text.empty()) return text;
  return {};
}

TEST_CASE("offloaded optimizers on 2 and 5 ranks, with and without a pipeline, change no bit") {
  const TempDir drive;
  Sample sample(16);
  for (const int data_ranks : {2, 5})
    for (const int stages : {1, 2})
      for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme})
        for (const int zero_stage : {1, 3})
          for (const OptimizerKind kind :
               {OptimizerKind::adam, OptimizerKind::lamb, OptimizerKind::muon}) {
            if (!sample.takes()) continue;
            Job job = job_of(data_ranks, stages, zero_stage);
            job.optimizer.kind = kind;
            Job moved = job;
            moved.offload.optimizer = to;
            moved.offload.nvme_paths = {drive.path()};
            INFO(describe(moved) << ", " << stages << " stages");
            CHECK(compare_offloaded(job, moved) == "");
          }
}

TEST_CASE("Muon's state on disk, of ranks whose slices hold matrices alone") {
  const TempDir drive;
  for (const int data_ranks : {2, 5}) {
    Job job = job_of(data_ranks, 1, 1);
    job.optimizer.kind = OptimizerKind::muon;
    Job moved = job;
    moved.offload.optimizer = OffloadTo::nvme;
    moved.offload.nvme_paths = {drive.path()};
    INFO(describe(moved));
    CHECK(compare_offloaded(job, moved) == "");
  }
}

}  // namespace
}  // namespace dstrain
