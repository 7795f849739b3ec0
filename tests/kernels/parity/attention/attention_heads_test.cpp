// Attention of queries, keys and values that are tensors of their own, with fewer heads of keys, a window, a scale and a limit of scores.
#include <array>
#include <limits>

#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"

namespace dstrain::attention_test {
namespace {

// Odd and even sizes with groups of one, two, three and five heads of queries, and windows of one key, a few, all and
// more. Dropout, a scale, a limit and the form of the operands alternate without a pattern.
std::vector<Case> heads_cases() {
  struct Heads {
    int64_t heads, kv_heads;
  };
  std::vector<Case> cases;
  uint32_t state = 7;
  const auto draw = [&state](uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  for (int64_t seq : {1, 7, 65})
    for (Heads heads : {Heads{1, 1}, Heads{3, 3}, Heads{6, 2}, Heads{3, 1}, Heads{5, 1}})
      for (int64_t head_size : {1, 5, 20, 64, 128})
        for (int64_t window : {int64_t{1}, int64_t{3}, seq, seq + 4}) {
          Case c;
          c.seq = seq, c.heads = heads.heads, c.kv_heads = heads.kv_heads, c.head_size = head_size;
          c.window = window;
          c.batch = 1 + draw(2);
          c.dtype = std::array{DType::f32, DType::bf16, DType::f16}[draw(3)];
          c.dropout = draw(3) == 0 ? 0.3f : 0.0f;
          c.scale = draw(3) == 0 ? 0.3 : 0.0;
          c.softcap = cases.size() % 3 == 0 ? 1.5 : 0.0;
          c.packed = draw(5) == 0;
          if (multiply_adds(c) <= parity::device_limits().budget) cases.push_back(c);
        }
  return cases;
}

// Windows around the sizes of the kernels' blocks, over several of these.
std::vector<Case> window_cases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t window :
         {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200, 255, 256, 257, 300}) {
      Case c;
      c.dtype = dtype, c.heads = 2, c.kv_heads = 1, c.head_size = 8, c.packed = false;
      c.seq = affordable(602, 16) + 1;
      c.window = window;
      c.dropout = window % 3 == 0 ? 0.1f : 0.0f;
      c.softcap = window % 2 == 0 ? 0.7 : 0.0;
      if (window < c.seq) cases.push_back(c);
    }
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = heads_cases();
  for (const Case& c : window_cases()) cases.push_back(c);
  return parity::sampled(cases, sample_of_attention());
}

TEST_CASE(
    "attention equals its definition for any heads of keys, head size, window, scale and limit") {
  for (const Case& c : all_cases()) {
    INFO(describe(c));
    AttentionRun f(c);
    f.run_forward();
    const Values qkv = f.qkv.values();
    const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
    parity::require_within("y", f.y.values(), expected.y, bound.y);
    parity::require_within("lse", f.lse.values(), expected.lse, bound.lse);
  }
}

TEST_CASE(
    "attention_grad equals its definition for any heads of keys, head size, window, scale and "
    "limit") {
  for (const Case& c : all_cases()) {
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

TEST_CASE("a window that is one key longer or shorter is no error of rounding") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Case c;
    c.dtype = dtype, c.seq = 48, c.head_size = 64, c.window = 7;
    AttentionRun f(c);
    f.set_forward_results();
    const Values qkv = f.qkv.values(), d_y = f.d_y.values(), y = f.y.values(), lse = f.lse.values();
    const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
    const Values gradient = reference_backward(c, d_y, qkv, y, lse),
                 gradient_bound = backward_bound(c, d_y, qkv, y, lse, gradient);
    for (int64_t more : {-1, 1}) {
      INFO(describe(c) << " and " << more);
      const Forward wrong = reference_forward(c, qkv, {.earlier_keys = more});
      CHECK(parity::excess_of(wrong.y, expected.y, bound.y).ratio > 50);
      CHECK(parity::excess_of(wrong.lse, expected.lse, bound.lse).ratio > 50);
      const Values of_gradient = reference_backward(c, d_y, qkv, y, lse, {.earlier_keys = more});
      CHECK(parity::excess_of(of_gradient, gradient, gradient_bound).ratio > 50);
    }
  }
}

// Runs both passes of two cases on the same values and requires the same bits of y, lse and d_q; and of d_k and d_v if
// both have as many heads of keys.
void require_same_runs(const Case& a, const Case& b) {
  INFO(describe(a) << "; " << describe(b));
  AttentionRun f(a), g(b);
  // Where `b` has a head of keys for each of queries, it has those of `a` several times.
  const auto widened = [&](const Values& values) {
    Values wide;
    for (int64_t row = 0; row < a.rows(); ++row)
      for (int64_t part = 0; part < 3; ++part)
        for (int64_t h = 0; h < b.heads; h += part == 0 ? 1 : b.group())
          for (int64_t d = 0; d < a.head_size; ++d)
            wide.push_back(values[HeadReference{a, 0, h}.at(row, part, d)]);
    return wide;
  };
  g.qkv.set(widened(f.qkv.values()));
  for (AttentionRun* run : {&f, &g}) {
    run->run_forward();
    run->run_backward();
  }
  parity::require_same_bits("y", f.y, g.y);
  parity::require_same_bits("lse", f.lse, g.lse);
  const Values x = f.d_qkv.values(), y = g.d_qkv.values();
  if (a.group() == b.group()) {
    REQUIRE(x == y);
    return;
  }
  for (int64_t row = 0; row < a.rows(); ++row)
    for (int64_t h = 0; h < a.heads; ++h)
      for (int64_t d = 0; d < a.head_size; ++d)
        REQUIRE(x[HeadReference{a, 0, h}.at(row, 0, d)] == y[HeadReference{b, 0, h}.at(row, 0, d)]);
}

// Returns the values of columns [first, first + count) of rows of q, k and v, or of y.
Values columns_of(const Values& rows, int64_t columns, int64_t first, int64_t count) {
  Values some;
  for (auto row = rows.begin(); row != rows.end(); row += columns)
    some.insert(some.end(), row + first, row + first + count);
  return some;
}

std::vector<Case> shared_heads_cases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t head_size : {8, 21, 72})
      for (int64_t window : {0, 9}) {
        Case c;
        c.dtype = dtype, c.batch = 2, c.heads = 4, c.kv_heads = 2, c.head_size = head_size;
        c.window = window, c.dropout = 0.2f, c.packed = false;
        c.seq = affordable(150, 2 * 4 * head_size);
        cases.push_back(c);
      }
  return parity::sampled(cases, sample_of_attention());
}

TEST_CASE("attention gives separate operands the bits of one operand of all three") {
  for (const Case& c : shared_heads_cases()) {
    Case packed = c;
    packed.packed = true;
    require_same_runs(c, packed);
  }
}

TEST_CASE("attention gives shared heads of keys the bits of heads of keys that are repeated") {
  for (const Case& c : shared_heads_cases()) {
    Case repeated = c;
    repeated.kv_heads = c.heads;
    require_same_runs(c, repeated);
  }
}

TEST_CASE("attention of some of a model's heads has the bits of these heads, dropout included") {
  for (Case c : shared_heads_cases()) {
    c.batch = 1;
    const int64_t k = c.heads / c.kv_heads, d = c.head_size;
    AttentionRun all(c);
    all.run_forward();
    all.run_backward();
    Case some = c;
    some.heads = k, some.kv_heads = 1, some.first_head = c.heads - k;
    INFO(describe(some));
    AttentionRun f(some);
    // The last head of keys, and the heads of queries that it serves.
    const auto last_heads = [&](const Values& rows) {
      Values last;
      for (int64_t row = 0; row < c.rows(); ++row) {
        const auto at = rows.begin() + row * c.columns();
        last.insert(last.end(), at + some.first_head * d, at + c.heads * d);
        for (int64_t part = 1; part < 3; ++part) {
          const auto end = at + c.channels() + part * c.kv_channels();
          last.insert(last.end(), end - d, end);
        }
      }
      return last;
    };
    const auto last_of_y = [&](const Values& rows) {
      return columns_of(rows, c.channels(), some.first_head * d, k * d);
    };
    f.qkv.set(last_heads(all.qkv.values()));
    f.d_y.set(last_of_y(all.d_y.values()));
    f.run_forward();
    f.run_backward();
    REQUIRE(f.y.values() == last_of_y(all.y.values()));
    REQUIRE(f.d_qkv.values() == last_heads(all.d_qkv.values()));
  }
}

TEST_CASE("a window that reaches all keys, and the default scale by its value, change no bit") {
  for (Case c : shared_heads_cases()) {
    c.window = 0, c.head_size = 16;
    for (int64_t more : {0, 3}) {
      Case all = c;
      all.window = c.seq + more;
      all.scale = 0.25;
      require_same_runs(c, all);
    }
  }
}

TEST_CASE("attention with shared heads of keys has the same bits for any number of threads") {
  for (Case c : shared_heads_cases()) {
    c.batch = 1;
    for (int64_t kv_heads : {1, 2}) {
      c.kv_heads = kv_heads;
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
}

TEST_CASE("attention_grad of shared heads and a window is the derivative by finite differences") {
  for (int64_t window : {0, 4}) {
    Case c;
    c.batch = 2, c.seq = 19, c.heads = 4, c.kv_heads = 2, c.head_size = 7, c.packed = false;
    c.window = window, c.scale = 0.5, c.dropout = 0.1f;
    require_derivative(c);
  }
}

TEST_CASE("attention reads no keys and values of blocks that are before the window") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Case c;
    c.dtype = dtype, c.heads = 1, c.head_size = 8, c.window = 5, c.packed = false;
    c.seq = affordable(1200, 8);
    INFO(describe(c));
    AttentionRun f(c);
    Values qkv = f.qkv.values();
    const HeadReference head{c, 0, 0};
    for (int64_t part : {1, 2}) qkv[head.at(0, part, 3)] = std::numeric_limits<double>::quiet_NaN();
    f.qkv.set(qkv);
    f.run_forward();
    REQUIRE(std::isnan(f.y.values()[head.at_y(c.window - 1, 3)]));
    // No kernel has blocks of more than 256 keys, or of more than 128 queries.
    for (int64_t row = 256 + c.window; row < c.seq; ++row)
      REQUIRE(!std::isnan(f.y.values()[head.at_y(row, 3)]));
  }
}

}  // namespace
}  // namespace dstrain::attention_test
