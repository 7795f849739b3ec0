// The attention kernels for Hopper GPUs, on the emulated device: the shapes that they take, within the bounds of all
// kernels, and with the bits of the kernels for other GPUs.
#include <algorithm>
#include <limits>
#include <vector>

#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"
#include "tests/kernels/parity/devices/emulated_gpu.h"

namespace dstrain::attention_test {
namespace {

// Lengths of one tile of 64 rows and of several, more than a ring has stages, and on both sides of the edges of tiles.
std::vector<Case> plain_cases_of_hopper() {
  std::vector<Case> cases;
  for (int64_t head_size : {64, 128})
    for (float dropout : {0.0f, 0.3f})
      for (int64_t seq : {1, 63, 65, 130, 324}) {
        Case c;
        c.head_size = head_size, c.dropout = dropout, c.seq = seq;
        c.dtype = cases.size() % 3 == 1 ? DType::f16 : DType::bf16;
        c.heads = seq < 100 ? 3 : 1, c.batch = seq < 100 ? 2 : 1;
        c.first_sample = (uint64_t{1} << 33) + 5;
        c.packed = seq != 65;
        cases.push_back(c);
      }
  return parity::sampled(cases, parity::kSanitized ? Sample::always(8) : Sample(1));
}

// Sets the documents of a case with one sample, which begin at row 0 and at `starts`.
Case with_documents(Case c, const std::vector<int64_t>& starts) {
  int64_t begin = 0;
  for (int64_t row = 0; row < c.seq; ++row) {
    if (std::ranges::find(starts, row) != starts.end()) begin = row;
    c.documents.push_back(begin);
  }
  return c;
}

// Heads of queries that share heads of keys, windows and documents of less than a tile and of several, so that whole tiles are
// left out at both ends.
std::vector<Case> general_cases_of_hopper() {
  struct Heads {
    int64_t heads, kv_heads;
  };
  std::vector<Case> cases;
  const auto add = [&](int64_t seq, Heads heads, int64_t window,
                       const std::vector<int64_t>& documents) {
    Case c;
    c.seq = seq, c.heads = heads.heads, c.kv_heads = heads.kv_heads, c.window = window;
    c.head_size = cases.size() % 2 == 0 ? 64 : 128;
    c.dropout = cases.size() % 4 < 2 ? 0.0f : 0.2f;
    c.dtype = cases.size() % 3 == 0 ? DType::f16 : DType::bf16;
    c.packed = cases.size() % 5 == 0;
    c.first_head = 2;
    cases.push_back(documents.empty() ? c : with_documents(c, documents));
  };
  add(66, {2, 1}, 0, {});
  add(196, {6, 2}, 0, {});
  add(191, {3, 1}, 0, {});
  add(66, {4, 2}, 0, {});
  add(257, {1, 1}, 1, {});
  add(330, {1, 1}, 3, {});
  add(130, {2, 2}, 64, {});
  add(195, {2, 1}, 65, {});
  add(330, {1, 1}, 100, {});
  add(257, {1, 1}, 200, {});
  add(320, {1, 1}, 0, {63});
  add(132, {1, 1}, 40, {64});
  add(195, {1, 1}, 0, {65});
  add(263, {1, 1}, 90, {128, 129});
  add(200, {2, 1}, 70, {1, 2, 3, 190});
  add(320, {1, 1}, 0, {10, 80, 200, 260});
  return parity::sampled(cases, parity::kSanitized ? Sample::always(8) : Sample(2));
}

// The definition takes longer than the emulated device: it checks small cases. The kernels for other GPUs, which have tests
// of their own, check the bits of all.
bool is_small(const Case& c) {
  return multiply_adds(c) < 2'500'000;
}

void check_both_passes(const Case& c) {
  INFO(describe(c));
  AttentionRun f(c);
  f.run_forward();
  const Values qkv = f.qkv.values();
  const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
  parity::require_within("y", f.y.values(), expected.y, bound.y);
  parity::require_within("lse", f.lse.values(), expected.lse, bound.lse);
  f.run_backward();
  const Values d_y = f.d_y.values(), y = f.y.values(), lse = f.lse.values();
  const Values gradient = reference_backward(c, d_y, qkv, y, lse);
  parity::require_within("d_q, d_k, d_v", f.d_qkv.values(), gradient,
                         backward_bound(c, d_y, qkv, y, lse, gradient));
}

TEST_CASE("attention on Hopper equals its definition, forward and backward") {
  for (const Case& c : plain_cases_of_hopper())
    if (is_small(c)) check_both_passes(c);
}

TEST_CASE("attention on Hopper takes shared heads of keys, windows and documents") {
  for (const Case& c : general_cases_of_hopper())
    if (is_small(c)) check_both_passes(c);
}

// Blocks of other sizes leave out other keys, which changes no sum.
TEST_CASE("attention on Hopper has the bits of the kernels for other GPUs") {
  const parity::EmulatedGpu other(false);
  std::vector<Case> cases = plain_cases_of_hopper();
  for (const Case& c : general_cases_of_hopper()) cases.push_back(c);
  for (const Case& c : cases) {
    INFO(describe(c));
    AttentionRun f(c), g(c);
    f.run_forward();
    g.run_forward(2, other);
    parity::require_same_bits("y", f.y, g.y);
    parity::require_same_bits("lse", f.lse, g.lse);
    f.run_backward();
    g.run_backward(2, other);
    require_same_bits("d_q, d_k, d_v", f.d_qkv, g.d_qkv);
  }
}

// A query's tile reads no tile of keys in front of its window, and a key's tile no queries behind it.
TEST_CASE("attention on Hopper leaves out the tiles that no query of a tile sees") {
  Case c;
  c.dtype = DType::bf16, c.seq = 400, c.head_size = 64, c.window = 10;
  AttentionRun f(c);
  Values qkv = f.qkv.values();
  const HeadReference head{c, 0, 0};
  for (int64_t part : {1, 2}) qkv[head.at(3, part, 5)] = std::numeric_limits<double>::quiet_NaN();
  f.qkv.set(qkv);
  f.run_forward();
  f.run_backward();
  REQUIRE(std::isnan(f.y.values()[head.at_y(9, 5)]));
  for (int64_t row = 128; row < c.seq; ++row) {
    REQUIRE(!std::isnan(f.y.values()[head.at_y(row, 5)]));
    for (int64_t part : {0, 1, 2}) REQUIRE(!std::isnan(f.d_qkv.values()[head.at(row, part, 5)]));
  }
}

}  // namespace
}  // namespace dstrain::attention_test
