#include "kernels/cpu/attention/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::attention {
namespace {

Implementation blocks_of(int64_t forward_queries, int64_t queries, int64_t keys) {
  Implementation implementation{};
  implementation.forward_query_block = forward_queries;
  implementation.query_block = queries;
  implementation.key_block = keys;
  return implementation;
}

AttentionShape shape_of(int64_t batch, int64_t heads, int64_t seq) {
  AttentionShape p;
  p.batch = batch, p.heads = heads, p.seq = seq, p.head_size = 8;
  return p;
}

// (head, block) -> how often the block is computed.
using Counts = std::map<std::pair<int64_t, int64_t>, int>;

void count(Counts& counts, int64_t head, Range blocks) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) ++counts[{head, b}];
}

void require_once(const Counts& counts, int64_t heads, int64_t blocks) {
  REQUIRE(static_cast<int64_t>(counts.size()) == heads * blocks);
  for (const auto& [block, times] : counts) REQUIRE(times == 1);
}

TEST_CASE("every block of attention is done once, by any number of threads") {
  for (int64_t batch : {1, 3}) {
    for (int64_t heads : {1, 2, 5, 12}) {
      for (int64_t seq : {1, 64, 65, 700}) {
        for (int threads : {1, 2, 3, 16, 70}) {
          INFO(batch << " x " << heads << " heads, T " << seq << ", threads " << threads);
          const AttentionShape p = shape_of(batch, heads, seq);
          const Implementation implementation = blocks_of(64, 64, 256);
          Counts forward, keys, queries;
          for (const auto& mine : schedule_forward(p, implementation, threads)) {
            for (const ForwardTask& t : mine) count(forward, t.head, t.query_blocks);
          }
          for (const auto& mine : schedule_backward(p, implementation, threads)) {
            for (const BackwardTask& t : mine) {
              count(keys, t.head, t.part.key_blocks);
              count(queries, t.head, t.part.query_blocks);
            }
          }
          require_once(forward, batch * heads, divide_up(seq, 64));
          require_once(keys, batch * heads, divide_up(seq, 256));
          require_once(queries, batch * heads, divide_up(seq, 64));
        }
      }
    }
  }
}

TEST_CASE("threads share the causal triangle of one head evenly") {
  const AttentionShape p = shape_of(1, 1, 4096);
  const Implementation implementation = blocks_of(64, 64, 64);
  std::vector<int64_t> forward, backward;
  for (const auto& mine : schedule_forward(p, implementation, 4)) {
    int64_t cost = 0;
    for (const ForwardTask& t : mine) {
      for (int64_t b = t.query_blocks.begin; b < t.query_blocks.end; ++b) cost += b + 1;
    }
    forward.push_back(cost);
  }
  for (const auto& mine : schedule_backward(p, implementation, 4)) {
    int64_t cost = 0;
    for (const BackwardTask& t : mine) {
      REQUIRE(!t.part.fused);
      for (int64_t k = t.part.key_blocks.begin; k < t.part.key_blocks.end; ++k)
        cost += 4 * (64 - k);
      for (int64_t q = t.part.query_blocks.begin; q < t.part.query_blocks.end; ++q) {
        cost += 3 * (q + 1);
      }
    }
    backward.push_back(cost);
  }
  for (const std::vector<int64_t>& costs : {forward, backward}) {
    const int64_t total = std::accumulate(costs.begin(), costs.end(), int64_t{0});
    REQUIRE(*std::max_element(costs.begin(), costs.end()) * 4 < total * 11 / 10);
  }
}

}  // namespace
}  // namespace dstrain::attention
