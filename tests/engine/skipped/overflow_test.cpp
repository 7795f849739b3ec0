// fp16 runs with injected overflows: the loss scale follows DeepSpeed's ZeRO 1-3, and a skipped step changes
// nothing but the counters.
#include <catch2/catch.hpp>
#include <limits>

#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

Job fp16_job() {
  Job job;
  job.model = GptLite{
      .n_layer = 1, .n_embd = 16, .n_head = 2, .block_size = 8, .dropout = 0.1, .vocab_size = 11};
  job.batch = {2, 2, 1};
  job.dtype = job.wire_dtype = DType::f16;
  job.skip_on_overflow = true;
  job.loss_scale = {.dynamic = true, .initial = 65536, .window = 3, .hysteresis = 2, .minimum = 1};
  return job;
}

std::vector<float> copy_of(const TestRank& test_rank, const std::string& buffer) {
  const BufferId id = test_rank.plans.train.program.find(buffer);
  const Tensor t = test_rank.arenas.tensor(test_rank.plans.train, id);
  return {t.as<float>(), t.as<float>() + t.elements()};
}

}  // namespace

TEST_CASE("injected overflows give the reference's trace: 65536 65536 32768 16384 x3, then 32768") {
  const RandomDataset data(11);
  TestRank test_rank(fp16_job(), data);
  init_loss_scale(test_rank.state, test_rank.job.loss_scale);
  const Tensor weights = test_rank.arenas.tensor(test_rank.plans.train,
                                                 test_rank.plans.train.program.find("params:head"));
  std::vector<float> used, after;
  for (int step = 0; step < 8; ++step) {
    test_rank.state.loss_scale = test_rank.state.next_loss_scale;
    used.push_back(test_rank.state.loss_scale);
    const f16 good = weights.as<f16>()[0];
    const bool overflow = step < 3;
    if (overflow) weights.as<f16>()[0] = {0x7c00};  // infinity
    const std::vector<float> master = copy_of(test_rank, "master:blocks.0");
    const std::vector<float> moment = copy_of(test_rank, "exp_avg:blocks.0");
    test_rank.step(1e-3f);
    CHECK(test_rank.state.skip == (overflow ? 1 : 0));
    CHECK((copy_of(test_rank, "master:blocks.0") == master) == overflow);
    CHECK((copy_of(test_rank, "exp_avg:blocks.0") == moment) == overflow);
    if (overflow) weights.as<f16>()[0] = good;
    after.push_back(test_rank.state.next_loss_scale);
  }
  CHECK(after == std::vector<float>{65536, 32768, 16384, 16384, 16384, 16384, 32768, 32768});
  CHECK(used == std::vector<float>{65536, 65536, 32768, 16384, 16384, 16384, 16384, 32768});
}

TEST_CASE("an overflow at the smallest scale ends the run") {
  const RandomDataset data(11);
  Job job = fp16_job();
  job.loss_scale = {.dynamic = true, .initial = 1, .window = 3, .hysteresis = 1, .minimum = 1};
  TestRank test_rank(job, data);
  init_loss_scale(test_rank.state, job.loss_scale);
  test_rank.arenas.tensor(test_rank.plans.train, test_rank.plans.train.program.find("params:head"))
      .as<f16>()[0] = {0x7c00};
  CHECK_THROWS_WITH(test_rank.step(1e-3f), Catch::Contains("minimum"));
}

TEST_CASE(
    "steps that are skipped for ever end the run, but for those of a search for the loss scale") {
  const RandomDataset data(11);
  Job job = fp16_job();
  job.max_skipped_steps = 3;
  const bool searches = GENERATE(false, true);
  job.loss_scale.dynamic = searches;
  TestRank test_rank(job, data);
  init_loss_scale(test_rank.state, job.loss_scale);
  f16& weight =
      test_rank.arenas
          .tensor(test_rank.plans.train, test_rank.plans.train.program.find("params:head"))
          .as<f16>()[0];
  const f16 good = weight, bad = {0x7c00};  // infinity
  const auto step = [&](f16 value) {
    weight = value;
    test_rank.state.loss_scale = test_rank.state.next_loss_scale;
    test_rank.step(1e-3f);
  };
  for (const f16 value : {bad, bad, good, bad, bad}) CHECK_NOTHROW(step(value));
  if (searches)
    CHECK_NOTHROW(step(bad));
  else
    CHECK_THROWS_WITH(step(bad), Catch::Contains(", 3 steps in a row were skipped") &&
                                     Catch::Contains("non-finite value is"));
}

TEST_CASE("a non-finite gradient that must not be skipped ends the run and names step and tensor") {
  const RandomDataset data(11);
  Job job = fp16_job();
  job.dtype = job.wire_dtype = job.grad_dtype = GENERATE(DType::f32, DType::bf16);
  job.skip_on_overflow = false;
  job.loss_scale = {};
  TestRank test_rank(job, data);
  test_rank.model.master(test_rank.plans.train.program.parameters.back()).values.as<float>()[3] =
      std::numeric_limits<float>::quiet_NaN();
  test_rank.model.publish_masters();
  CHECK_THROWS_WITH(test_rank.step(1e-3f), Catch::Contains("step 1") &&
                                               Catch::Contains("token_embedding_table.weight") &&
                                               Catch::Contains("nan"));
}

TEST_CASE("a gradient that is not finite is found wherever gradients are") {
  const RandomDataset data(11);
  const TempDir drive;
  Job job = fp16_job();
  job.dtype = job.wire_dtype = GENERATE(DType::f32, DType::bf16);
  job.skip_on_overflow = false;
  job.loss_scale = {};
  job.reduce = ReduceMode::micro_batch;
  job.offload.optimizer = GENERATE(OffloadTo::cpu, OffloadTo::nvme);
  job.offload.nvme_paths = {drive.path()};
  TestRank test_rank(job, data);
  const Program& program = test_rank.plans.train.program;
  CHECK(program.space_of(program.find("grads:head")) ==
        (job.offload.uses_disk() ? Space::disk : Space::host));
  const Tensor weights =
      test_rank.arenas.tensor(test_rank.plans.train, program.find("params:head"));
  if (weights.dtype == DType::f32)
    weights.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  else
    weights.as<bf16>()[3] = {0x7fc0};
  CHECK_THROWS_WITH(test_rank.step(1e-3f),
                    Catch::Contains("token_embedding_table.weight") && Catch::Contains("nan"));
}

TEST_CASE("clipping scales the update, not the reported norm") {
  const RandomDataset data(11);
  Job job = fp16_job();
  job.dtype = job.wire_dtype = DType::f32;
  job.loss_scale = {};
  job.gradient_clipping = 0.01;
  TestRank test_rank(job, data);
  test_rank.step(0);
  CHECK(test_rank.state.grad_norm > 0.01f);
  CHECK(test_rank.state.grad_scale == Approx(0.01 / (test_rank.state.grad_norm + 1e-6)));
}
