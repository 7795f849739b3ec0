// Steps of one micro-batch hold gradients as they have been sent, in 16 bits, and keep the bits of steps that hold them in
// f32. mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "runtime/config/held_gradients.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

constexpr int64_t kOfRank = 2;  // samples of a micro-batch

// Every step has `micros` micro-batches for each of `ranks` ranks; the first has the samples of a step of one micro-batch,
// and the others have no targets, so that the step is the same.
class FirstMicroBatches final : public RandomDataset {
 public:
  FirstMicroBatches(int64_t vocab, int64_t ranks, int64_t micros)
      : RandomDataset(vocab, 0.1), first_(kOfRank * ranks), step_(first_ * micros) {}
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    const bool counts = first % step_ < first_;
    RandomDataset::read(split, first / step_ * first_ + first % step_ % first_, count, inputs);
    for (const InputTensor& input : inputs)
      if (!counts && input.role == InputRole::labels)
        std::fill_n(input.tensor.as<int32_t>(), input.tensor.elements(), -1);
  }

 private:
  int64_t first_, step_;
};

Job job_of(int ranks, DType dtype, int64_t micros) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{
      .n_layer = 3, .n_embd = 30, .n_head = 2, .block_size = 7, .dropout = 0, .vocab_size = 13};
  job.batch = {micros * kOfRank * ranks, kOfRank, micros};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p24, .window = 100, .hysteresis = 1};
  }
  return job;
}

}  // namespace

TEST_CASE("gradients of one micro-batch have in 16 bits the bits of those that are held in f32") {
  const auto comm = make_communicator();
  constexpr int kSteps = 8;
  Sample sample(2);
  const TempDir drive;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Job wide = job_of(comm->size(), dtype, 2);
    REQUIRE_FALSE(holds_gradients_as_sent(wide));
    const RunResult expected =
        run_steps(wide, FirstMicroBatches(13, comm->size(), 2), *comm, kSteps);
    const FirstMicroBatches data(13, comm->size(), 1);
    for (const int stage : {0, 1, 2, 3})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
        for (const bool overlap : {false, true})
          for (const OffloadTo offload : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme}) {
            if (!sample.takes()) continue;
            Job job = job_of(comm->size(), dtype, 1);
            job.zero_stage = stage;
            job.reduce = reduce;
            job.overlap_comm = overlap;
            job.offload.optimizer = stage > 0 ? offload : OffloadTo::none;
            job.offload.nvme_paths = {drive.path()};
            job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
            REQUIRE(holds_gradients_as_sent(job));
            INFO(describe(job));
            const RunResult result = run_steps(job, data, *comm, kSteps);
            CHECK(difference(expected, result, *comm) == "");
            CHECK(result.sent_per_step == result.planned_to_send);
          }
  }
}
