#include <catch2/catch.hpp>

#include "runtime/plan/settings/largest.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job searched(int sequence = 1) {
  Job job;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 32, .n_head = 4, .block_size = 64, .gelu = true, .vocab_size = 100};
  job.ranks = job.sequence_ranks = sequence;
  job.batch = {.train_batch = 8, .micro_batch = 4, .accumulation = 2};
  return job;
}

LongestSequence longest_in(const Job& job, int64_t bytes) {
  return longest_sequence(job, fake_inputs(), [&](const PlannedMemory& memory) {
    return std::string(memory.device > bytes ? "device" : "");
  });
}

int64_t bytes_of(Job job, int64_t tokens) {
  job.batch = {.train_batch = 2, .micro_batch = 1, .accumulation = 2};
  job.model.set("block_size", tokens);
  return planned_memory(job, fake_inputs()).device;
}

}  // namespace

TEST_CASE("the longest sequence fits, and 128 tokens more do not") {
  for (const int64_t bytes : {3000000, 10000000, 77000000}) {
    const LongestSequence longest = longest_in(searched(), bytes);
    CAPTURE(bytes, longest.tokens);
    REQUIRE(longest.tokens > 0);
    CHECK(longest.tokens % 128 == 0);
    CHECK(longest.limit == "device");
    CHECK(longest.memory.device == bytes_of(searched(), longest.tokens));
    CHECK(longest.memory.device <= bytes);
    CHECK(bytes_of(searched(), longest.tokens + 128) > bytes);
  }
  const LongestSequence none = longest_in(searched(), 1000);
  CHECK(none.tokens == 0);
  CHECK(none.limit == "device");
}

TEST_CASE("ranks that divide samples, recompute and open pieces make sequences longer") {
  constexpr int64_t kBytes = 20000000;
  const int64_t alone = longest_in(searched(), kBytes).tokens;
  CHECK(longest_in(searched(2), kBytes).tokens > 3 * alone / 2);
  Job job = searched();
  job.recompute = {RecomputeMode::interval, 1};
  const int64_t again = longest_in(job, kBytes).tokens;
  CHECK(again > alone);
  job.loss_chunks = job.mlp_chunks = 0;
  CHECK(longest_in(job, kBytes).tokens > again);
}

TEST_CASE("a model without tokens has no longest sequence") {
  Job job = searched();
  job.model = BenchmarkModel{.n_layer = 2, .in_size = 8, .hidden_size = 8, .out_size = 8};
  CHECK(longest_in(job, 1 << 30).tokens == 0);
}
