// A step allocates nothing: every operator new of the process is counted.
#include <catch2/catch.hpp>

#include "tests/engine/counted_allocations.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("a step allocates nothing, in every dtype") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    INFO(name_of(dtype));
    Job job;
    job.model =
        GptLite{.n_layer = 2, .n_embd = 64, .n_head = 2, .block_size = 48, .vocab_size = 65};
    job.batch = {.train_batch = 4, .micro_batch = 2, .accumulation = 2};
    job.dtype = job.wire_dtype = dtype;
    const RandomDataset data(65);
    TestRank test_rank(job, data, 2);
    test_rank.step(1e-3f);  // libraries make their thread pools in the first one
    const int64_t before = counted_allocations();
    test_rank.step(1e-3f);
    CHECK(counted_allocations() - before == 0);
  }
}

TEST_CASE("the counter counts") {
  const int64_t before = counted_allocations();
  const std::vector<int> v(100, before > 0 ? 1 : 2);
  CHECK(v[7] == 1);
  CHECK(counted_allocations() - before >= 1);
}
