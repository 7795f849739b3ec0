// A step allocates nothing: every operator new of the process is counted here.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "tests/engine/test_rank.h"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

// Both are replaced together, by malloc and free; the compiler looks at one of them inlined.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

using namespace dstrain;

TEST_CASE("a step allocates nothing, in every dtype") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    INFO(name_of(dtype));
    Job job;
    job.model = {.n_layer = 2, .n_embd = 64, .n_head = 2, .block_size = 48, .vocab_size = 65};
    job.batch = {.train_batch = 4, .micro_batch = 2, .accumulation = 2};
    job.dtype = job.wire_dtype = dtype;
    const RandomDataset data(65);
    TestRank test_rank(job, data, 2);
    test_rank.step(1e-3f);  // libraries make their thread pools in the first one
    const int64_t before = allocations;
    test_rank.step(1e-3f);
    CHECK(allocations - before == 0);
  }
}

TEST_CASE("the counter counts") {
  const int64_t before = allocations;
  const std::vector<int> v(100, allocations > 0 ? 1 : 2);
  CHECK(v[7] == 1);
  CHECK(allocations - before >= 1);
}
