// Attention of samples that hold several documents. Against the same documents as samples of their own, y, lse and the
// gradients agree within rounding, because blocks of rows and keys lie otherwise; where documents begin at multiples of
// the largest block (256 rows), they have the same bits. What another document of the sample holds changes no bit.
#include <algorithm>
#include <array>
#include <limits>

#include "tests/kernels/parity/attention/attention_bound.h"
#include "tests/kernels/parity/attention/attention_run.h"

namespace dstrain::attention_test {
namespace {

// Sets the documents of a case, which begin at row 0 and at `starts`, those of each further sample a row later.
Case with_documents(Case c, const std::vector<int64_t>& starts) {
  c.documents.clear();
  for (int64_t sample = 0; sample < c.batch; ++sample) {
    int64_t begin = 0;
    for (int64_t row = 0; row < c.seq; ++row) {
      if (std::ranges::find(starts, row - sample) != starts.end()) begin = row;
      c.documents.push_back(begin);
    }
  }
  return c;
}

std::vector<int64_t> all_rows(int64_t seq) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < seq; ++row) rows.push_back(row);
  return rows;
}

// Documents that begin around the edges of the kernels' blocks, of one row, of all rows; with all dtypes, and in turn
// with windows, shared heads of keys, dropout and heads of any size.
std::vector<Case> document_cases() {
  constexpr int64_t kRows = 300;
  const std::vector<std::vector<int64_t>> starts{{},
                                                 all_rows(kRows),
                                                 {1},
                                                 {kRows - 1},
                                                 {63},
                                                 {64},
                                                 {65},
                                                 {255},
                                                 {256},
                                                 {257},
                                                 {31, 32, 33, 127, 128, 129},
                                                 {63, 64, 65, 255, 256, 257},
                                                 {5, 100, 107, 230}};
  struct Sizes {
    int64_t heads, kv_heads, head_size;
  };
  constexpr std::array kSizes{Sizes{1, 1, 8}, Sizes{2, 1, 3},  Sizes{1, 1, 72}, Sizes{3, 1, 64},
                              Sizes{2, 2, 8}, Sizes{1, 1, 20}, Sizes{4, 2, 16}, Sizes{1, 1, 136}};
  std::vector<Case> cases;
  uint32_t state = 11;
  const auto draw = [&state](uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  for (const std::vector<int64_t>& begins : starts)
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (int64_t window : {0, 3, 100}) {
        Case c;
        c.dtype = dtype, c.seq = kRows, c.window = window;
        // The emulated device is slow: it takes one of three windows, and the smallest heads alone.
        if (parity::device_limits().budget < (1 << 30) && draw(3) != 0) continue;
        Sizes sizes = kSizes[draw(kSizes.size())];
        if (sizes.heads * sizes.head_size * kRows * kRows > parity::device_limits().budget)
          sizes = kSizes[draw(2)];
        c.heads = sizes.heads, c.kv_heads = sizes.kv_heads, c.head_size = sizes.head_size;
        c.batch = sizes.head_size == 3 ? 2 : 1;
        c.dropout = draw(3) == 0 ? 0.2f : 0.0f;
        c.packed = draw(3) == 0;
        cases.push_back(with_documents(c, begins));
      }
  return cases;
}

// Small heads of every width of the kernels, for documents at the edges of blocks.
std::vector<Case> wide_cases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t head_size : {20, 72, 128})
      for (float dropout : {0.0f, 0.3f}) {
        Case c;
        c.dtype = dtype, c.seq = affordable(140, head_size), c.head_size = head_size;
        c.dropout = dropout, c.packed = false;
        cases.push_back(with_documents(c, {31, 64, 65, 66}));
        c.window = 40;
        cases.push_back(with_documents(c, {30, 97}));
      }
  return cases;
}

std::vector<Case> all_document_cases() {
  std::vector<Case> cases = document_cases();
  for (const Case& c : wide_cases()) cases.push_back(c);
  return parity::sampled(cases, sample_of_attention());
}

TEST_CASE("attention of documents equals its definition, wherever they begin") {
  for (const Case& c : all_document_cases()) {
    INFO(describe(c));
    AttentionRun f(c);
    f.run_forward();
    const Values qkv = f.qkv.values();
    const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
    parity::require_within("y", f.y.values(), expected.y, bound.y);
    parity::require_within("lse", f.lse.values(), expected.lse, bound.lse);
  }
}

TEST_CASE("attention_grad of documents equals its definition, wherever they begin") {
  for (const Case& c : all_document_cases()) {
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

TEST_CASE("a document that begins a row earlier or later is no error of rounding") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Case c;
    c.dtype = dtype, c.seq = 48, c.head_size = 64;
    c = with_documents(c, {11, 30});
    AttentionRun f(c);
    f.set_forward_results();
    const Values qkv = f.qkv.values(), d_y = f.d_y.values(), y = f.y.values(), lse = f.lse.values();
    const Forward expected = reference_forward(c, qkv), bound = forward_bound(c, qkv, expected);
    const Values gradient = reference_backward(c, d_y, qkv, y, lse),
                 gradient_bound = backward_bound(c, d_y, qkv, y, lse, gradient);
    const Fault earlier{.earlier_keys = 1};
    const Forward wrong = reference_forward(c, qkv, earlier);
    CHECK(parity::excess_of(wrong.y, expected.y, bound.y).ratio > 50);
    CHECK(parity::excess_of(wrong.lse, expected.lse, bound.lse).ratio > 50);
    const Values of_gradient = reference_backward(c, d_y, qkv, y, lse, earlier);
    CHECK(parity::excess_of(of_gradient, gradient, gradient_bound).ratio > 50);
  }
}

TEST_CASE("attention_grad of documents is the derivative of attention by finite differences") {
  for (int64_t window : {0, 4}) {
    Case c;
    c.batch = 2, c.seq = 19, c.heads = 4, c.kv_heads = 2, c.head_size = 7, c.packed = false;
    c.window = window, c.dropout = 0.1f;
    require_derivative(with_documents(c, {3, 4, 11}));
  }
}

void run_both(AttentionRun& run, int threads = 2) {
  run.run_forward(threads);
  run.run_backward(threads);
}

TEST_CASE(
    "attention of a sample that is one document has the bits of attention without documents") {
  Sample sample = sample_of_attention();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t head_size : {8, 21, 72})
      for (int64_t window : {0, 50})
        for (float dropout : {0.0f, 0.2f}) {
          if (!sample.takes()) continue;
          Case c;
          c.dtype = dtype, c.batch = 2, c.head_size = head_size, c.window = window;
          c.seq = affordable(300, 2 * head_size), c.dropout = dropout;
          INFO(describe(c));
          AttentionRun f(c);
          c.documents.assign(static_cast<size_t>(c.rows()), 0);
          AttentionRun g(c);
          run_both(f);
          run_both(g);
          parity::require_same_bits("y", g.y, f.y);
          parity::require_same_bits("lse", g.lse, f.lse);
          require_same_bits("d_q, d_k, d_v", g.d_qkv, f.d_qkv);
        }
}

TEST_CASE("attention of documents has the same bits for any number of threads") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t kv_heads : {1, 2}) {
      Case c;
      c.dtype = dtype, c.heads = 4, c.kv_heads = kv_heads, c.head_size = 8, c.packed = false;
      c.seq = affordable(700, 4 * 8), c.dropout = 0.2f;
      c = with_documents(c, {10, 64, 129, 300});
      INFO(describe(c));
      AttentionRun one(c), many(c);
      run_both(one, 1);
      for (int threads : parity::device_limits().threads) {
        run_both(many, threads);
        parity::require_same_bits("y", many.y, one.y);
        parity::require_same_bits("lse", many.lse, one.lse);
        require_same_bits("d_q, d_k, d_v", many.d_qkv, one.d_qkv);
      }
    }
}

// Returns the values of rows [begin, end) of a matrix with so many columns.
Values rows_of(const Values& values, int64_t begin, int64_t end, int64_t columns) {
  return {values.begin() + begin * columns, values.begin() + end * columns};
}

TEST_CASE("what a document holds changes no bit of another one in its sample") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t head_size : {8, 20, 72}) {
      Case c;
      c.dtype = dtype, c.head_size = head_size, c.dropout = 0.1f;
      c.seq = affordable(300, head_size);
      const int64_t begin = c.seq / 3, end = std::min(c.seq / 2 + 7, c.seq - 1);
      c = with_documents(c, {begin, end});
      INFO(describe(c));
      AttentionRun f(c), g(c);
      Values qkv = g.qkv.values(), d_y = g.d_y.values();
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < c.columns(); ++i)
          qkv[static_cast<size_t>(row * c.columns() + i)] *= -9;
        for (int64_t i = 0; i < c.channels(); ++i)
          d_y[static_cast<size_t>(row * c.channels() + i)] += 3;
      }
      g.qkv.set(qkv);
      g.d_y.set(d_y);
      run_both(f);
      run_both(g);
      const auto same = [](const Values& a, const Values& b, int64_t from, int64_t to,
                           int64_t columns) {
        return rows_of(a, from, to, columns) == rows_of(b, from, to, columns);
      };
      for (const auto& [from, to] : {std::pair{int64_t{0}, begin}, std::pair{end, c.seq}}) {
        REQUIRE(same(f.y.values(), g.y.values(), from, to, c.channels()));
        REQUIRE(same(f.lse.values(), g.lse.values(), from, to, 1));
        REQUIRE(same(f.d_qkv.values(), g.d_qkv.values(), from, to, c.columns()));
      }
      REQUIRE(!same(f.y.values(), g.y.values(), begin, end, c.channels()));
      REQUIRE(!same(f.d_qkv.values(), g.d_qkv.values(), begin, end, c.columns()));
    }
}

// Runs each document of a case with one head as a sample of its own, and calls check(packed run, own run, first row).
template <class Check>
void for_own_samples(const Case& c, const Check& check) {
  AttentionRun f(c);
  run_both(f);
  for (int64_t begin = 0, end = 0; begin < c.seq; begin = end) {
    while (end < c.seq && c.documents[static_cast<size_t>(end)] == begin) ++end;
    Case own = c;
    own.documents.clear();
    own.seq = end - begin;
    INFO(describe(c) << "; " << describe(own));
    AttentionRun g(own);
    g.qkv.set(rows_of(f.qkv.values(), begin, end, c.columns()));
    g.d_y.set(rows_of(f.d_y.values(), begin, end, c.channels()));
    run_both(g);
    check(f, g, begin);
  }
}

TEST_CASE("documents that begin at multiples of 256 have the bits of samples of their own") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t head_size : {4, 8, 72}) {
      Case c;
      c.dtype = dtype, c.head_size = head_size, c.seq = 256 + 41;
      if (multiply_adds(c) > parity::device_limits().budget) continue;
      if (multiply_adds(c) * 9 < parity::device_limits().budget) c.seq = 3 * 256 + 41;
      for_own_samples(
          with_documents(c, {256, 512, 768}),
          [&](const AttentionRun& f, const AttentionRun& g, int64_t begin) {
            const int64_t end = begin + g.c.seq;
            REQUIRE(rows_of(f.y.values(), begin, end, c.channels()) == g.y.values());
            REQUIRE(rows_of(f.lse.values(), begin, end, 1) == g.lse.values());
            REQUIRE(rows_of(f.d_qkv.values(), begin, end, c.columns()) == g.d_qkv.values());
          });
    }
}

TEST_CASE("documents that begin anywhere are within rounding of samples of their own") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t head_size : {8, 20}) {
      Case c;
      c.dtype = dtype, c.head_size = head_size, c.seq = affordable(300, head_size);
      // Both runs are within the bound of the definition. The backward pass reads what the forward pass has rounded.
      for_own_samples(with_documents(c, {1, 38, 77, 120}), [&](const AttentionRun& f,
                                                               const AttentionRun& g,
                                                               int64_t begin) {
        const int64_t end = begin + g.c.seq;
        const Values qkv = g.qkv.values();
        const Forward expected = reference_forward(g.c, qkv);
        Forward bound = forward_bound(g.c, qkv, expected);
        for (Values* values : {&bound.y, &bound.lse})
          for (double& value : *values) value *= 2;
        parity::require_within("y", rows_of(f.y.values(), begin, end, c.channels()), g.y.values(),
                               bound.y);
        parity::require_within("lse", rows_of(f.lse.values(), begin, end, 1), g.lse.values(),
                               bound.lse);
        const Values own = g.d_qkv.values();
        const double scale = std::max(largest(own), 1.0);
        const double error = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 4e-3 : 3e-2;
        parity::require_close("d_q, d_k, d_v", rows_of(f.d_qkv.values(), begin, end, c.columns()),
                              own, {error, error * scale});
      });
    }
}

TEST_CASE("attention reads no keys and values of blocks that are before the document") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Case c;
    c.dtype = dtype, c.heads = 1, c.head_size = 8, c.packed = false, c.seq = 300;
    c = with_documents(c, {256});
    INFO(describe(c));
    AttentionRun f(c);
    Values qkv = f.qkv.values();
    const HeadReference head{c, 0, 0};
    for (int64_t part : {1, 2}) qkv[head.at(9, part, 3)] = std::numeric_limits<double>::quiet_NaN();
    f.qkv.set(qkv);
    run_both(f);
    REQUIRE(std::isnan(f.y.values()[head.at_y(9, 3)]));
    for (int64_t row = 256; row < c.seq; ++row) {
      REQUIRE(!std::isnan(f.y.values()[head.at_y(row, 3)]));
      for (int64_t part : {0, 1, 2}) REQUIRE(!std::isnan(f.d_qkv.values()[head.at(row, part, 3)]));
    }
  }
}

}  // namespace
}  // namespace dstrain::attention_test
