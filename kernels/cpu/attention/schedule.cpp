#include "kernels/cpu/attention/schedule.h"

namespace dstrain::attention {
namespace {

// Products per pair of blocks. If d_q, d_k and d_v are computed together, they share the scores and the scores'
// gradient; if not, these are computed twice.
constexpr int64_t kFusedCost = 5, kKeyCost = 4, kQueryCost = 3;

// Divides items in order among threads by cost: thread t gets the items whose middle lies in the t-th of equal
// parts of the total cost.
class Divider {
 public:
  Divider(int64_t total, int threads) : total_(total), threads_(threads) {}
  // Returns the thread of the next item.
  int next(int64_t cost) {
    const int64_t middle = done_ + cost / 2;
    done_ += cost;
    const int64_t t = middle * threads_ / std::max<int64_t>(total_, 1);
    return static_cast<int>(std::min<int64_t>(t, threads_ - 1));
  }

 private:
  int64_t total_;
  int threads_;
  int64_t done_ = 0;
};

void extend(Range& range, int64_t item) {
  if (range.empty()) range.begin = item;
  range.end = item + 1;
}

}  // namespace

std::vector<std::vector<ForwardTask>> schedule_forward(const AttentionShape& shape,
                                                       const Implementation& implementation,
                                                       int threads) {
  std::vector<std::vector<ForwardTask>> tasks(static_cast<size_t>(threads));
  const int64_t rows = implementation.forward_query_block, heads = shape.batch * shape.heads;
  Divider divider(heads * shape.seen_pairs(0, shape.seq), threads);
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t begin = 0; begin < shape.seq; begin += rows) {
      const int64_t cost = shape.seen_pairs(begin, std::min(begin + rows, shape.seq));
      auto& mine = tasks[static_cast<size_t>(divider.next(cost))];
      if (mine.empty() || mine.back().head != head) mine.push_back({head, {}});
      extend(mine.back().query_blocks, begin / rows);
    }
  }
  return tasks;
}

std::vector<std::vector<BackwardTask>> schedule_backward(const AttentionShape& shape,
                                                         const Implementation& implementation,
                                                         int threads) {
  std::vector<std::vector<BackwardTask>> tasks(static_cast<size_t>(threads));
  const int64_t heads = shape.batch * shape.kv_heads, group = shape.group();
  const int64_t queries = divide_up(shape.seq, implementation.query_block);
  const int64_t keys = divide_up(shape.seq, implementation.key_block);
  const int64_t rest = heads % threads;
  const bool split = rest * (kKeyCost + kQueryCost) < threads * kFusedCost;
  const int64_t whole = split ? heads - rest : heads;
  for (int64_t head = 0; head < whole; ++head) {
    tasks[static_cast<size_t>(head * threads / whole)].push_back(
        {head, {true, {0, keys}, {0, group * queries}}});
  }

  const int64_t pairs = group * shape.seen_pairs(0, shape.seq);
  Divider divider((heads - whole) * (kKeyCost + kQueryCost) * pairs, threads);
  const auto part_of = [&](int thread, int64_t head) -> GradPart& {
    auto& mine = tasks[static_cast<size_t>(thread)];
    if (mine.empty() || mine.back().kv_head != head) mine.push_back({head, {}});
    return mine.back().part;
  };
  for (int64_t head = whole; head < heads; ++head) {
    for (int64_t k = 0; k < keys; ++k) {
      // Counted from the end, keys are seen by as many queries as queries see keys from the beginning.
      const int64_t from_end = shape.seq - k * implementation.key_block;
      const int64_t cost =
          shape.seen_pairs(std::max<int64_t>(from_end - implementation.key_block, 0), from_end);
      extend(part_of(divider.next(kKeyCost * group * cost), head).key_blocks, k);
    }
    for (int64_t q = 0; q < group * queries; ++q) {
      const int64_t begin = q % queries * implementation.query_block;
      const int64_t cost =
          shape.seen_pairs(begin, std::min(begin + implementation.query_block, shape.seq));
      extend(part_of(divider.next(kQueryCost * cost), head).query_blocks, q);
    }
  }
  return tasks;
}

}  // namespace dstrain::attention
