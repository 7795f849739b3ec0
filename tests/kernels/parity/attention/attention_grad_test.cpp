#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"

namespace dstrain::attention_test {
namespace {

// Compares d_qkv with the reference of the operands of `f` as they are stored.
void check_gradient(const AttentionRun& f, bool ordinary_scores) {
  const Case& c = f.c;
  const Values d_y = f.d_y.values(), qkv = f.qkv.values(), y = f.y.values(), lse = f.lse.values();
  const Values expected = reference_backward(c, d_y, qkv, y, lse);
  if (c.dtype == DType::f32 && ordinary_scores)
    parity::require_close("d_qkv", f.d_qkv.values(), expected,
                          f32_tolerance(largest(expected), 5e-6));
  else
    parity::require_within("d_qkv", f.d_qkv.values(), expected,
                           backward_bound(c, d_y, qkv, y, lse, expected));
  if (!ordinary_scores) return;
  const double norm_error = parity::relative_norm_error(f.d_qkv.values(), expected);
  REQUIRE(norm_error < (c.dtype == DType::f32 ? 2e-6 : c.dtype == DType::f16 ? 4e-4 : 4e-3));
}

void check_backward(const Case& c, int64_t offset = 0) {
  INFO(describe(c));
  AttentionRun f(c, 1, offset);
  f.set_forward_results();
  f.run_backward();
  check_gradient(f, true);
}

TEST_CASE("attention_grad equals its definition at odd and even sizes in every dtype") {
  for (const Case& c : plain_cases()) check_backward(c);
}

TEST_CASE("attention_grad drops the weights that attention dropped") {
  for (const Case& c : dropout_cases()) check_backward(c);
}

TEST_CASE("attention_grad takes operands at any alignment of elements") {
  for (const Case& c : odd_head_cases())
    for (int64_t offset : {1, 3, 7}) check_backward(c, offset);
}

TEST_CASE("attention_grad is the derivative of attention by finite differences") {
  for (float dropout : {0.0f, 0.1f, 0.5f}) {
    for (int64_t seq : {1, 5, 19}) {
      Case c;
      c.batch = 2, c.seq = seq, c.heads = 2, c.head_size = 7, c.dropout = dropout;
      require_derivative(c);
    }
  }
}

TEST_CASE("attention_grad stays finite with scores in the thousands") {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Case c;
    c.dtype = dtype, c.seq = affordable(150, 128), c.heads = 2, c.head_size = 64, c.dropout = 0.1f;
    INFO(describe(c));
    AttentionRun f(c, 4000);
    f.run_forward();
    f.run_backward();
    check_gradient(f, false);
  }
}

TEST_CASE("the bound of attention_grad's errors is less than what a fault changes") {
  for (double query_std : {1.0, 4000.0}) {
    Case c;
    c.dtype = DType::bf16, c.seq = 48, c.head_size = 64;
    INFO(describe(c) << " queries " << query_std);
    AttentionRun f(c, query_std);
    f.set_forward_results();
    const Values d_y = f.d_y.values(), qkv = f.qkv.values(), y = f.y.values(), lse = f.lse.values();
    const auto gradient = [&](const Fault& fault) {
      return reference_backward(c, d_y, qkv, y, lse, fault);
    };
    const Values expected = gradient({});
    const Values bound = backward_bound(c, d_y, qkv, y, lse, expected);
    CHECK(parity::excess_of(gradient({.scale = 1.1}), expected, bound).ratio > 2);
    CHECK(parity::excess_of(gradient({.later_keys = 1}), expected, bound).ratio > 50);
  }
}

TEST_CASE("attention_grad gives the same bits for any number of threads and in every run") {
  for (Case c : plain_cases()) {
    c.dropout = 0.1f;
    INFO(describe(c));
    AttentionRun one(c), many(c);
    one.run_forward(1);
    many.run_forward(1);
    one.run_backward(1);
    for (int threads : parity::device_limits().threads) {
      many.run_backward(threads);
      require_same_bits("d_qkv", many.d_qkv, one.d_qkv);
    }
  }
}

}  // namespace
}  // namespace dstrain::attention_test
