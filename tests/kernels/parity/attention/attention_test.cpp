#include <limits>

#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"

namespace dstrain::attention_test {
namespace {

void check_forward(Case c, double query_std = 1, int64_t offset = 0) {
  INFO(describe(c));
  AttentionRun f(c, query_std, offset);
  f.run_forward();
  const Values qkv = f.qkv.values();
  const Forward expected = reference_forward(c, qkv);
  if (c.dtype == DType::f32 && query_std == 1) {
    parity::require_close("y", f.y.values(), expected.y, f32_tolerance(largest(qkv), 2e-6));
    parity::require_close("lse", f.lse.values(), expected.lse, {1e-6, 2e-6});
    return;
  }
  const Forward bound = forward_bound(c, qkv, expected);
  parity::require_within("y", f.y.values(), expected.y, bound.y);
  parity::require_within("lse", f.lse.values(), expected.lse, bound.lse);
}

TEST_CASE("attention equals its definition at odd and even sizes in every dtype") {
  for (const Case& c : plain_cases()) check_forward(c);
}

TEST_CASE("attention drops exactly the weights that the counter names") {
  for (const Case& c : dropout_cases()) check_forward(c);
}

TEST_CASE("attention takes operands at any alignment of elements") {
  for (const Case& c : odd_head_cases())
    for (int64_t offset : {1, 3, 7}) check_forward(c, 1, offset);
}

// With queries of this size scores are about 1e4: one weight of most rows dominates.
constexpr double kHugeQueries = 4000;

TEST_CASE("attention stays finite and right with scores in the thousands") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Case c;
    c.dtype = dtype, c.seq = affordable(150, 128), c.heads = 2, c.head_size = 64;
    REQUIRE(largest(reference_forward(c, AttentionRun(c, kHugeQueries).qkv.values()).lse) > 5e3);
    check_forward(c, kHugeQueries);
  }
}

// The rounding of the only weight of a row must not reach y: it would be an error in the same direction in all of the row.
TEST_CASE("a query that sees one key has the value of this key, to the bit") {
  Case c;
  c.dtype = DType::bf16, c.seq = 3, c.batch = affordable(12, 4), c.heads = 2, c.head_size = 64;
  AttentionRun f(c);
  f.run_forward();
  const Values qkv = f.qkv.values(), y = f.y.values();
  for (int64_t sample = 0; sample < c.batch; ++sample)
    for (int64_t i = 0; i < c.channels(); ++i) {
      const int64_t row = sample * c.seq;
      REQUIRE(y[static_cast<size_t>(row * c.channels() + i)] ==
              qkv[static_cast<size_t>(row * c.columns() + 2 * c.channels() + i)]);
    }
}

TEST_CASE("the bound of attention's errors is less than what a fault changes") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (double query_std : {1.0, 15.0, kHugeQueries}) {
      Case c;
      c.dtype = dtype, c.seq = 48, c.head_size = 64;
      if (dtype == DType::f16 && query_std == kHugeQueries)
        continue;  // beyond f16's largest numbers
      INFO(describe(c) << " queries " << query_std);
      const Values qkv = AttentionRun(c, query_std).qkv.values();
      const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
      CHECK(largest(bound.y) < 0.25);
      // A wrong scale shows in the statistics, and in the result unless one weight of each row dominates.
      const Forward scaled = reference_forward(c, qkv, {.scale = 1.1});
      CHECK(parity::excess_of(scaled.lse, expected.lse, bound.lse).ratio > 50);
      if (query_std < kHugeQueries)
        CHECK(parity::excess_of(scaled.y, expected.y, bound.y).ratio > 2);
      const Forward unmasked = reference_forward(c, qkv, {.later_keys = 1});
      CHECK(parity::excess_of(unmasked.lse, expected.lse, bound.lse).ratio > 50);
      CHECK(parity::excess_of(unmasked.y, expected.y, bound.y).ratio > 50);
    }
}

TEST_CASE("attention follows a maximum that rises by much from one key block to the next") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (float dropout : {0.0f, 0.2f}) {
      Case c;
      c.dtype = dtype, c.seq = affordable(700, 64), c.heads = 1, c.head_size = 64,
      c.dropout = dropout;
      check_forward(c, 15);
    }
  }
}

TEST_CASE("attention carries a NaN of a query to its row and to no earlier one") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Case c;
    c.dtype = dtype, c.seq = 40, c.heads = 1, c.head_size = 32;
    AttentionRun f(c);
    Values qkv = f.qkv.values();
    qkv[static_cast<size_t>(20 * 3 * 32 + 4)] = std::numeric_limits<double>::quiet_NaN();
    f.qkv.set(qkv);
    f.run_forward();
    const Values y = f.y.values();
    for (int64_t row = 0; row < c.seq; ++row) {
      for (int64_t d = 0; d < 32; ++d) {
        REQUIRE(std::isnan(y[static_cast<size_t>(row * 32 + d)]) == (row == 20));
      }
    }
  }
}

TEST_CASE("attention gives the same bits for any number of threads and in every run") {
  for (Case c : plain_cases()) {
    c.dropout = 0.1f;
    INFO(describe(c));
    AttentionRun one(c), many(c);
    one.run_forward(1);
    for (int threads : parity::device_limits().threads) {
      many.run_forward(threads);
      parity::require_same_bits("y", many.y, one.y);
      parity::require_same_bits("lse", many.lse, one.lse);
    }
  }
}

TEST_CASE("attention gives a sample the same bits in any micro-batch") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Case both;
    both.dtype = dtype, both.batch = 2, both.seq = 75, both.heads = 3, both.head_size = 24;
    both.dropout = 0.3f, both.first_sample = 10;
    AttentionRun f(both);
    f.run_forward();
    Case second = both;
    second.batch = 1, second.first_sample = 11;
    AttentionRun g(second);
    const Values qkv = f.qkv.values();
    g.qkv.set(Values(qkv.begin() + g.qkv.elements(), qkv.end()));
    g.run_forward();
    const auto bytes = static_cast<size_t>(g.y.bytes());
    REQUIRE(f.y.raw().substr(bytes) == g.y.raw());
  }
}

}  // namespace
}  // namespace dstrain::attention_test
