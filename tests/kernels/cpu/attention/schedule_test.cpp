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

AttentionShape shape_of(int64_t batch, int64_t heads, int64_t seq, int64_t group = 1,
                        int64_t window = 0) {
  AttentionShape p;
  p.batch = batch, p.heads = heads * group, p.seq = seq, p.head_size = 8;
  p.kv_heads = heads;
  p.window = window > 0 ? window : seq;
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

// Requires that every block is computed once, with `heads` heads of keys.
void check_schedule(const AttentionShape& p, int threads) {
  INFO(p.batch << " x " << p.kv_heads << " heads of " << p.group() << ", T " << p.seq << ", window "
               << p.window << ", threads " << threads);
  const Implementation implementation = blocks_of(64, 64, 256);
  const int64_t heads = p.batch * p.kv_heads, queries_of_head = divide_up(p.seq, 64);
  Counts forward, keys, queries;
  for (const auto& mine : schedule_forward(p, implementation, threads)) {
    for (const ForwardTask& t : mine) count(forward, t.head, t.query_blocks);
  }
  for (const auto& mine : schedule_backward(p, implementation, threads)) {
    for (const BackwardTask& t : mine) {
      count(keys, t.kv_head, t.part.key_blocks);
      for (int64_t member = 0; member < p.group(); ++member) {
        const Range blocks = blocks_of_member(t.part.query_blocks, member, queries_of_head);
        count(queries, t.kv_head * p.group() + member, blocks);
        REQUIRE((!t.part.fused || blocks.end - blocks.begin == queries_of_head));
      }
    }
  }
  require_once(forward, heads * p.group(), queries_of_head);
  require_once(keys, heads, divide_up(p.seq, 256));
  require_once(queries, heads * p.group(), queries_of_head);
}

TEST_CASE("every block of attention is done once, by any number of threads") {
  for (int64_t batch : {1, 3})
    for (int64_t heads : {1, 2, 5, 12})
      for (int64_t group : {1, 3})
        for (int64_t seq : {1, 64, 65, 700})
          for (int64_t window : {0, 1, 100})
            for (int threads : {1, 2, 3, 16, 70})
              check_schedule(shape_of(batch, heads, seq, group, std::min(window, seq)), threads);
}

// The largest share of a thread in `costs`, of which an even one is 1.
double largest_share(const std::vector<int64_t>& costs) {
  const auto total = static_cast<double>(std::accumulate(costs.begin(), costs.end(), int64_t{0}));
  return static_cast<double>(*std::max_element(costs.begin(), costs.end())) *
         static_cast<double>(costs.size()) / total;
}

TEST_CASE("threads share the seen pairs of one head evenly") {
  const Implementation implementation = blocks_of(64, 64, 64);
  for (int64_t group : {1, 2})
    for (int64_t window : {0, 512}) {
      const AttentionShape p = shape_of(1, 1, 4096, group, window);
      INFO("group " << group << ", window " << window);
      const auto seen = [&](int64_t begin) { return p.seen_pairs(begin, begin + 64); };
      std::vector<int64_t> forward, backward;
      for (const auto& mine : schedule_forward(p, implementation, 4)) {
        int64_t cost = 0;
        for (const ForwardTask& t : mine)
          for (int64_t b = t.query_blocks.begin; b < t.query_blocks.end; ++b) cost += seen(b * 64);
        forward.push_back(cost);
      }
      for (const auto& mine : schedule_backward(p, implementation, 4)) {
        int64_t cost = 0;
        for (const BackwardTask& t : mine) {
          REQUIRE(!t.part.fused);
          for (int64_t k = t.part.key_blocks.begin; k < t.part.key_blocks.end; ++k)
            cost += 4 * group * seen(4096 - 64 - k * 64);
          for (int64_t q = t.part.query_blocks.begin; q < t.part.query_blocks.end; ++q)
            cost += 3 * seen(q % 64 * 64);
        }
        backward.push_back(cost);
      }
      REQUIRE(largest_share(forward) < 1.1);
      REQUIRE(largest_share(backward) < 1.1);
    }
}

}  // namespace
}  // namespace dstrain::attention
