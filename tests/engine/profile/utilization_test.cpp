// The FLOPs that a model needs, and the speed of one product.
#include "runtime/engine/profile/utilization.h"

#include <catch2/catch.hpp>
#include <tuple>
#include <utility>

#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job decoder_job() {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 32, .n_head = 2, .block_size = 16, .vocab_size = 58};
  job.batch = {16, 8, 2};
  return job;
}

double flops_of(const Job& job, int rank = 0) {
  const PlanInputs inputs{make_planning_library(implementations(), kind_of(job.device)), 1};
  return model_flops(make_rank_plan(job, place_of(job, rank), inputs).train);
}

TEST_CASE("a model needs three times the FLOPs of its forward products, and none twice") {
  // Of each row: the products of 12 C^2 weights a layer and of the head. The first product has a gradient of its input,
  // too, as what is before it is trained.
  const double weights = 12.0 * 2 * 32 * 32 + 58 * 32;
  const double products = 3 * 2 * 8 * 16 * weights;
  // Half of all pairs of a query and a key see each other; two products forward, four backward.
  const double pairs = 8 * 16 * 16 / 2.0;
  const double attention = 2 * 6 * 2 * pairs * 32;
  const double step = 2 * (products + attention);
  Job job = decoder_job();
  CHECK(flops_of(job) == Approx(step));
  job.recompute = {RecomputeMode::interval, 1};
  CHECK(flops_of(job) == Approx(step));
}

TEST_CASE("ranks that divide layers and samples need the model's FLOPs between them") {
  const double alone = flops_of(decoder_job());
  Job job = decoder_job();
  job.ranks = 4;
  std::tie(job.sequence_ranks, job.tensor_ranks) =
      GENERATE(std::pair{1, 4}, std::pair{2, 2}, std::pair{4, 1});
  job.model.set("n_head", 4);
  double sum = 0;
  for (int rank = 0; rank < job.ranks; ++rank) sum += flops_of(job, rank);
  // 58 classes are 15 of each of 4 tensor ranks, filled up.
  CHECK(sum == Approx(alone).epsilon(job.tensor_ranks == 4 ? 0.01 : 1e-6));
}

TEST_CASE("the rate of a product is measured where its memory can be had") {
  const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
  for (const DType dtype : {DType::f32, DType::bf16})
    CHECK(product_rate(backend, dtype, 64, 1) > 1e6);
  CHECK(product_rate(make_backend(implementations(), DeviceChoice::emulated), DType::bf16, 16, 1) >
        0);
  CHECK(product_rate(backend, DType::f32, int64_t{1} << 24, 1) == 0);
}

}  // namespace
}  // namespace dstrain
