// Attention that is not causal: each query sees all keys of its sample.
#include <array>
#include <limits>

#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"

namespace dstrain::attention_test {
namespace {

// Odd and even sizes in every dtype, on both sides of the edges of the kernels' blocks, of one block and of several, with
// groups of one, two and three heads of queries. Dropout, a scale, a limit and the form of the operands alternate.
std::vector<Case> all_keys_cases() {
  struct Heads {
    int64_t heads, kv_heads;
  };
  constexpr std::array kHeads{Heads{1, 1}, Heads{2, 1}, Heads{3, 3}, Heads{6, 2}};
  std::vector<Case> cases;
  uint32_t state = 5;
  const auto draw = [&state](uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t seq :
         {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 197, 256, 257, 300})
      for (int64_t head_size : {8, 21, 64, 72, 128, 136}) {
        // One of three sizes of heads at each length.
        if (draw(3) != 0) continue;
        Case c;
        c.dtype = dtype, c.seq = seq, c.head_size = head_size, c.causal = false;
        const Heads heads = kHeads[draw(kHeads.size())];
        c.heads = heads.heads, c.kv_heads = heads.kv_heads;
        c.batch = 1 + draw(2);
        c.dropout = draw(3) == 0 ? 0.3f : 0.0f;
        c.scale = draw(4) == 0 ? 0.3 : 0.0;
        c.softcap = draw(5) == 0 ? 1.5 : 0.0;
        c.packed = draw(3) == 0;
        // The reference is slow: long samples have one head.
        if (multiply_adds(c) > std::min<int64_t>(1 << 21, parity::device_limits().budget))
          c.heads = c.kv_heads = c.batch = 1;
        if (multiply_adds(c) <= parity::device_limits().budget) cases.push_back(c);
      }
  return parity::sampled(cases, sample_of_attention());
}

TEST_CASE("attention of all keys equals its definition at odd and even sizes in every dtype") {
  for (const Case& c : all_keys_cases()) {
    INFO(describe(c));
    AttentionRun f(c);
    f.run_forward();
    const Values qkv = f.qkv.values();
    const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
    parity::require_within("y", f.y.values(), expected.y, bound.y);
    parity::require_within("lse", f.lse.values(), expected.lse, bound.lse);
  }
}

TEST_CASE("attention_grad of all keys equals its definition at odd and even sizes in every dtype") {
  for (const Case& c : all_keys_cases()) {
    INFO(describe(c));
    AttentionRun f(c);
    f.set_forward_results();
    f.run_backward();
    const Values d_y = f.d_y.values(), qkv = f.qkv.values(), y = f.y.values(), lse = f.lse.values();
    const Values expected = reference_backward(c, d_y, qkv, y, lse);
    parity::require_within("d_q, d_k, d_v", f.d_qkv.values(), expected,
                           backward_bound(c, d_y, qkv, y, lse, expected));
  }
}

TEST_CASE("a key that a query does not see is no error of rounding where it sees all others") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Case c;
    c.dtype = dtype, c.seq = 48, c.head_size = 64, c.causal = false;
    INFO(describe(c));
    AttentionRun f(c);
    f.set_forward_results();
    const Values qkv = f.qkv.values(), d_y = f.d_y.values(), y = f.y.values(), lse = f.lse.values();
    const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
    const Values gradient = reference_backward(c, d_y, qkv, y, lse),
                 gradient_bound = backward_bound(c, d_y, qkv, y, lse, gradient);
    const Fault fewer{.later_keys = -1};
    const Forward wrong = reference_forward(c, qkv, fewer);
    CHECK(parity::excess_of(wrong.y, expected.y, bound.y).ratio > 50);
    CHECK(parity::excess_of(wrong.lse, expected.lse, bound.lse).ratio > 50);
    const Values of_gradient = reference_backward(c, d_y, qkv, y, lse, fewer);
    CHECK(parity::excess_of(of_gradient, gradient, gradient_bound).ratio > 50);
  }
}

// Keys past the last one, which fill the last block, have scores of 0: far above all others here, they must not count.
TEST_CASE("attention of all keys takes scores far below 0, where the last block has fewer keys") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t seq : {5, 33, 70}) {
      Case c;
      c.dtype = dtype, c.seq = seq, c.head_size = 16, c.causal = false, c.packed = false;
      INFO(describe(c));
      AttentionRun f(c);
      Values qkv = f.qkv.values();
      const HeadReference head{c, 0, 0};
      for (int64_t row = 0; row < seq; ++row)
        for (int64_t d = 0; d < c.head_size; ++d) {
          qkv[head.at(row, 0, d)] = 16;
          qkv[head.at(row, 1, d)] = -16 - static_cast<double>(row % 3) / 8;
        }
      f.qkv.set(qkv);
      f.run_forward();
      const Values stored = f.qkv.values();
      const Forward expected = reference_forward(c, stored);
      REQUIRE(largest(expected.lse) > 500);
      parity::require_close("y", f.y.values(), expected.y, {0.02, 0.02});
      parity::require_close("lse", f.lse.values(), expected.lse, {1e-4, 1e-2});
      f.run_backward();
      const Values gradient =
          reference_backward(c, f.d_y.values(), stored, f.y.values(), f.lse.values());
      REQUIRE(parity::relative_norm_error(f.d_qkv.values(), gradient) <
              (dtype == DType::f32 ? 5e-3 : 2e-2));
    }
}

TEST_CASE("attention_grad of all keys is the derivative of attention by finite differences") {
  for (float dropout : {0.0f, 0.3f})
    for (int64_t seq : {1, 5, 19}) {
      Case c;
      c.batch = 2, c.seq = seq, c.heads = 4, c.kv_heads = 2, c.head_size = 7, c.packed = false;
      c.dropout = dropout, c.causal = false;
      require_derivative(c);
    }
}

TEST_CASE("attention of all keys carries a NaN of a key to every row, of a query to its own") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t part : {0, 1}) {
      Case c;
      c.dtype = dtype, c.seq = 40, c.heads = 1, c.head_size = 32, c.causal = false;
      AttentionRun f(c);
      Values qkv = f.qkv.values();
      const HeadReference head{c, 0, 0};
      qkv[head.at(39, part, 4)] = std::numeric_limits<double>::quiet_NaN();
      f.qkv.set(qkv);
      f.run_forward();
      const Values y = f.y.values();
      for (int64_t row = 0; row < c.seq; ++row)
        REQUIRE(std::isnan(y[head.at_y(row, 3)]) == (part == 1 || row == 39));
    }
}

TEST_CASE("attention of all keys has the same bits for any number of threads and in every run") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t kv_heads : {1, 3}) {
      Case c;
      c.dtype = dtype, c.heads = 3, c.kv_heads = kv_heads, c.head_size = 24, c.packed = false;
      c.seq = affordable(401, 3 * 24), c.dropout = 0.2f, c.causal = false;
      INFO(describe(c));
      AttentionRun one(c), many(c);
      one.run_forward(1);
      one.run_backward(1);
      for (int threads : parity::device_limits().threads) {
        many.run_forward(threads);
        many.run_backward(threads);
        parity::require_same_bits("y", many.y, one.y);
        parity::require_same_bits("lse", many.lse, one.lse);
        require_same_bits("d_q, d_k, d_v", many.d_qkv, one.d_qkv);
      }
    }
}

// The sum over keys has one order, whichever query it is of.
TEST_CASE("the last query of attention has the same bits, causal or not") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t seq : {1, 37, 64, 150}) {
      Case c;
      c.dtype = dtype, c.seq = affordable(seq, 2 * 40), c.heads = 2, c.head_size = 40;
      AttentionRun f(c);
      f.run_forward();
      c.causal = false;
      INFO(describe(c));
      AttentionRun g(c);
      g.run_forward();
      const Values causal = f.y.values(), all = g.y.values();
      for (int64_t i = (c.rows() - 1) * c.channels(); i < c.rows() * c.channels(); ++i)
        REQUIRE(causal[static_cast<size_t>(i)] == all[static_cast<size_t>(i)]);
    }
}

}  // namespace
}  // namespace dstrain::attention_test
