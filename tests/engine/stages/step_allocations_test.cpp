// A step of several ranks allocates nothing, on any of them: neither where they compute nor where they communicate.
#include <catch2/catch.hpp>

#include "launcher/implementations.h"
#include "runtime/comm/world.h"
#include "runtime/engine/run/trainer.h"
#include "tests/engine/counted_allocations.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

constexpr int kFirstSteps = 2;  // libraries make their thread pools and buffers in the first ones

// Returns the allocations of a step after the first ones.
int64_t allocations_of_a_step(const Job& job, const Dataset& data, Communicator& comm) {
  RunContext context{implementations()};
  context.comm = &comm;
  Trainer trainer(job, data, context, make_backend(implementations(), job.device));
  trainer.load();
  for (int i = 0; i < kFirstSteps; ++i) trainer.step();
  const int64_t before = counted_allocations();
  trainer.step();
  return counted_allocations() - before;
}

TEST_CASE("a step of several ranks allocates nothing at any stage") {
  const RandomDataset data(65);
  const auto comm = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 1, 2, 3}) {
      Job job;
      job.model =
          GptLite{.n_layer = 2, .n_embd = 64, .n_head = 2, .block_size = 24, .vocab_size = 65};
      job.ranks = comm->size();
      job.batch = {.train_batch = 4 * comm->size(), .micro_batch = 2, .accumulation = 2};
      job.dtype = job.wire_dtype = dtype;
      job.zero_stage = stage;
      job.reduce = stage >= 2 ? ReduceMode::micro_batch : ReduceMode::boundary;
      job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
      INFO(describe(job));
      CHECK(allocations_of_a_step(job, data, *comm) == 0);
    }
}

TEST_CASE("the counter counts what another module allocates") {
  Job job;
  job.model = GptLite{};
  const int64_t before = counted_allocations();
  const std::string text = describe(job);
  CHECK(text.size() > 100);
  CHECK(counted_allocations() > before);
}

}  // namespace
}  // namespace dstrain
