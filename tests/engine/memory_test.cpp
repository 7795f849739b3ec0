// Compares the plan's memory with what the operating system reports: reserved bytes, present pages, and the
// process's memory besides the plan.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "runtime/plan/settings/fit.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr int64_t kPage = 4096;

// Returns the bytes of [begin, begin + bytes) that are in present pages.
int64_t resident(const std::byte* begin, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = address / kPage * kPage;
  const size_t length = address + static_cast<size_t>(bytes) - first;
  std::vector<unsigned char> pages((length + kPage - 1) / kPage);
  REQUIRE(::mincore(reinterpret_cast<void*>(first), length, pages.data()) == 0);
  int64_t count = 0;
  for (unsigned char page : pages) count += page & 1;
  return std::min(count * kPage, bytes);
}

int64_t process_pss() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  int64_t kilobytes = 0;
  while (file >> word)
    if (word == "Pss:") {
      file >> kilobytes;
      break;
    }
  return kilobytes * 1024;
}

Job job_of(DType dtype, DType sums = DType::f32) {
  Job job;
  job.model =
      GptLite{.n_layer = 3, .n_embd = 192, .n_head = 3, .block_size = 128, .vocab_size = 65};
  job.batch = {.train_batch = 16, .micro_batch = 8, .accumulation = 2};
  job.dtype = job.wire_dtype = dtype;
  job.grad_dtype = sums;
  return job;
}

}  // namespace

TEST_CASE("the kernel holds what the plan says, class by class, and nothing more is reserved") {
  for (const auto& [dtype, sums] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
        std::pair{DType::bf16, DType::bf16}}) {
    INFO(name_of(dtype) << ", gradients " << name_of(sums));
    const Job job = job_of(dtype, sums);
    const RandomDataset data(65);
    TestRank test_rank(job, data);
    test_rank.step(1e-3f);
    const Plan& plan = test_rank.plans.train;
    std::map<MemoryClass, int64_t> present;
    for (size_t i = 0; i < plan.program.buffers.size(); ++i) {
      const Buffer& b = plan.program.buffers[i];
      if (b.parent != kNone || b.lifetime != Lifetime::persistent) continue;
      present[b.memory] += resident(test_rank.arenas.at(plan.address[i]), b.bytes());
    }
    const ClassBytes& planned = test_rank.plans.memory.at_peak;
    CHECK(present[MemoryClass::parameters] ==
          planned[static_cast<size_t>(MemoryClass::parameters)]);
    CHECK(present[MemoryClass::gradients] == planned[static_cast<size_t>(MemoryClass::gradients)]);
    CHECK(present[MemoryClass::optimizer] == planned[static_cast<size_t>(MemoryClass::optimizer)]);
    // The shared region, whose owners change: all of it is used, and no byte beyond it is reserved.
    const int64_t transient =
        test_rank.plans.memory.region_bytes[static_cast<size_t>(Region::transient)];
    CHECK(resident(test_rank.arenas.at({Region::transient, 0, 0}), transient) == transient);
    const int64_t rounding = kRegions * (int64_t{2} << 20);
    CHECK(test_rank.arenas.reserved_bytes() - test_rank.plans.memory.total() >= 0);
    CHECK(test_rank.arenas.reserved_bytes() - test_rank.plans.memory.total() < rounding);
  }
}

TEST_CASE("the host holds what the plan says of offloaded state") {
  Job job = job_of(DType::bf16);
  job.offload.optimizer = OffloadTo::cpu;
  const RandomDataset data(65);
  TestRank test_rank(job, data);
  test_rank.step(1e-3f);
  const MemoryTable& memory = test_rank.plans.memory;
  const int64_t host = memory.total(Space::host);
  CHECK(host > memory.host_at_peak[static_cast<size_t>(MemoryClass::optimizer)]);
  CHECK(resident(test_rank.arenas.at({Region::host, 0, 0}), host) == host);
  const int64_t reserved = test_rank.arenas.reserved_bytes() - memory.total() - host;
  CHECK(reserved >= 0);
  CHECK(reserved < kRegions * (int64_t{2} << 20));
}

TEST_CASE("a process needs no more than its plan and a known constant") {
  const Job job = job_of(DType::bf16);
  const RandomDataset data(65);
  TestRank test_rank(job, data);
  test_rank.step(1e-3f);
  CHECK(process_pss() < test_rank.plans.memory.total() + kProcessOverheadBytes);
}
