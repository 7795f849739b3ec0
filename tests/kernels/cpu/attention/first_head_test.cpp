// Attention of some of a model's heads: with dropout, too, the results have the bits of these heads among all.
#include <array>

#include "kernels/cpu/attention/attention.h"
#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::attention {
namespace {

using parity::Call;
using parity::Guarded;

const parity::CpuFamily kAttention{make_attention, attention_workspace_bytes};

using ByHead = std::vector<std::vector<double>>;

// The values of each head, in the order of the heads.
struct HeadResults {
  ByHead y, lse, d_q, d_k, d_v;
};

// Operands of attention of heads [first, first + heads) of queries, and of the heads of keys that they see.
struct HeadsRun {
  int64_t samples, seq, size, group;  // group: heads of queries that share a head of keys
  DType dtype;
  int64_t first, heads;
  bool packed;

  int64_t rows() const { return samples * seq; }
  int64_t kv_heads() const { return heads / group; }
  // Columns of q, k and v.
  int64_t columns(int tensor) const { return (tensor == 0 ? heads : kv_heads()) * size; }

  // Returns random values of rows of q, k and v (0, 1, 2) or d_y (3), as each head has them whatever heads are beside it.
  std::vector<double> values(int tensor) const {
    const bool keys = tensor == 1 || tensor == 2;
    const int64_t count = keys ? kv_heads() : heads, from = keys ? first / group : first;
    std::vector<double> v(static_cast<size_t>(rows() * count * size));
    for (int64_t h = 0; h < count; ++h) {
      const auto head =
          parity::normal_values(rows() * size, static_cast<uint64_t>(100 * tensor + from + h));
      for (int64_t i = 0; i < rows() * size; ++i)
        v[static_cast<size_t>((i / size * count + h) * size + i % size)] =
            head[static_cast<size_t>(i)];
    }
    return v;
  }
  // Returns q, k and v, or operands for their gradients: as one or as three.
  std::vector<Guarded> inputs(bool filled) const {
    std::vector<Guarded> made;
    if (!packed) {
      for (int t = 0; t < 3; ++t) {
        made.emplace_back(Shape{rows(), columns(t)}, dtype);
        if (filled) made.back().set(values(t));
      }
      return made;
    }
    const int64_t all = columns(0) + 2 * columns(1);
    made.emplace_back(Shape{rows(), all}, dtype);
    if (!filled) return made;
    std::vector<double> v(static_cast<size_t>(rows() * all));
    int64_t at = 0;
    for (int t = 0; t < 3; at += columns(t++)) {
      const std::vector<double> part = values(t);
      for (int64_t r = 0; r < rows(); ++r)
        std::copy_n(part.begin() + r * columns(t), columns(t), v.begin() + r * all + at);
    }
    made[0].set(v);
    return made;
  }

  // Runs attention and its gradient. Masks are those of `mask_head` and the heads that follow it.
  HeadResults results(int threads, int64_t mask_head) const {
    StepState state;
    state.seed = 5;
    state.first_sample = 11;
    Call call{.op = OpKind::attention, .threads = threads, .state = &state, .sample_offset = 2};
    call.attrs = AttentionAttrs{.dropout = 0.3f,
                                .site = 4,
                                .heads = heads,
                                .seq_len = seq,
                                .kv_heads = kv_heads(),
                                .first_head = mask_head};
    std::vector<Guarded> in = inputs(true), gradients = inputs(false);
    Guarded y({rows(), columns(0)}, dtype), d_y({rows(), columns(0)}, dtype),
        lse({samples, heads, seq}, DType::f32);
    d_y.set(values(3));
    std::vector<const Guarded*> reads;
    std::vector<Guarded*> writes;
    for (const Guarded& g : in) reads.push_back(&g);
    parity::run_kernel(kAttention, call, reads, {&y, &lse});
    call.op = OpKind::attention_grad;
    reads.insert(reads.begin(), &d_y);
    reads.insert(reads.end(), {&y, &lse});
    for (Guarded& g : gradients) writes.push_back(&g);
    parity::run_kernel(kAttention, call, reads, writes);

    const auto by_head = [&](const Guarded& g, int64_t begin, int64_t columns_of_all) {
      const std::vector<double> v = g.values();
      const int64_t width = g.shape()[-1];
      ByHead result(static_cast<size_t>(columns_of_all / size));
      for (size_t h = 0; h < result.size(); ++h)
        for (int64_t r = 0; r < rows(); ++r) {
          const auto at = v.begin() + r * width + begin + static_cast<int64_t>(h) * size;
          result[h].insert(result[h].end(), at, at + size);
        }
      return result;
    };
    HeadResults result;
    result.y = by_head(y, 0, columns(0));
    int64_t at = 0;
    for (int t = 0; t < 3; ++t) {
      ByHead& of = t == 0 ? result.d_q : t == 1 ? result.d_k : result.d_v;
      of = by_head(gradients[packed ? 0 : static_cast<size_t>(t)], at, columns(t));
      at += packed ? columns(t) : 0;
    }
    const std::vector<double> sums = lse.values();
    result.lse.resize(static_cast<size_t>(heads));
    for (int64_t row = 0; row < samples * heads; ++row) {
      std::vector<double>& head = result.lse[static_cast<size_t>(row % heads)];
      head.insert(head.end(), sums.begin() + row * seq, sums.begin() + (row + 1) * seq);
    }
    return result;
  }
};

// Returns those of `count` heads from `first` on.
ByHead heads_of(const ByHead& all, int64_t first, int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

TEST_CASE("attention of some heads of a model has the bits of these heads, dropout included") {
  constexpr int64_t kHeads = 6;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool packed : {true, false})
      for (const auto& [seq, size, group] :
           {std::array<int64_t, 3>{1, 8, 1}, {33, 24, 1}, {97, 64, 2}, {130, 32, 3}}) {
        const HeadsRun all{2, seq, size, group, dtype, 0, kHeads, packed};
        const HeadResults whole = all.results(2, 0);
        for (const auto& [first, heads] :
             {std::pair{int64_t{0}, group}, {group, group}, {kHeads - group, group}, {0, kHeads}})
          for (const int threads : {1, 3}) {
            INFO(name_of(dtype) << " T " << seq << " D " << size << " group " << group << " heads "
                                << first << " + " << heads << (packed ? " packed" : ""));
            const HeadsRun part{2, seq, size, group, dtype, first, heads, packed};
            const HeadResults got = part.results(threads, first);
            CHECK(got.y == heads_of(whole.y, first, heads));
            CHECK(got.lse == heads_of(whole.lse, first, heads));
            CHECK(got.d_q == heads_of(whole.d_q, first, heads));
            CHECK(got.d_k == heads_of(whole.d_k, first / group, heads / group));
            CHECK(got.d_v == heads_of(whole.d_v, first / group, heads / group));
          }
      }
}

TEST_CASE("dropout's masks are those of the model's head, and nothing else follows from it") {
  const HeadsRun run{2, 40, 16, 1, DType::f32, 0, 2, true};
  const HeadResults base = run.results(1, 0), other = run.results(1, 3);
  CHECK(base.y != other.y);
  CHECK(base.d_v != other.d_v);
  CHECK(base.lse == other.lse);
}

}  // namespace
}  // namespace dstrain::attention
