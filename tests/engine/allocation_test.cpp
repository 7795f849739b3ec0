// A step allocates nothing: every operator new of the process is counted.
#include <catch2/catch.hpp>

#include "runtime/data/open_dataset.h"
#include "runtime/engine/step/batch_feed.h"
#include "tests/data/arrays/array_files.h"
#include "tests/engine/counted_allocations.h"
#include "tests/engine/test_rank.h"
#include "tests/support/array_model.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

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

TEST_CASE("reading arrays allocates nothing, whether one thread reads them or several") {
  constexpr int64_t kSamples = 4000;
  const TempDir dir;
  Job job = array_job(
      {dir.write(
          "a.safetensors",
          safetensors(
              {{"x", "F64", {kSamples, 3, 4}, bytes_of_values(std::vector<double>(12 * kSamples))},
               {"y", "I64", {kSamples}, bytes_of_values(std::vector<int64_t>(kSamples))}}))},
      array_family());
  job.data.random_order = true;
  const std::unique_ptr<Dataset> data = open_dataset(job);
  for (const int64_t micro_batch : {int64_t{2}, kSamples}) {
    job.batch = {.train_batch = micro_batch, .micro_batch = micro_batch, .accumulation = 1};
    TestRank test_rank(job, *data, 2);
    test_rank.step(1e-3f);
    const BatchRequest next{data.get(), Split::train, micro_batch};
    BatchFeed feed(test_rank.plans.train, test_rank.arenas, test_rank.backend);
    const int64_t before = counted_allocations();
    feed.load(next);
    CHECK(counted_allocations() - before == 0);
  }
}

TEST_CASE("the counter counts") {
  const int64_t before = counted_allocations();
  const std::vector<int> v(100, before > 0 ? 1 : 2);
  CHECK(v[7] == 1);
  CHECK(counted_allocations() - before >= 1);
}
