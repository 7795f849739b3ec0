// log_probs and log_probs_grad against cross_entropy, whose losses and gradient they have row by row.
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

// Rows of logits, of which those behind `classes` do not count; every fourth row has no target.
struct Rows {
  Operand logits, targets;
  int64_t classes;

  Rows(int64_t rows, int64_t counted, int64_t padding, DType dtype)
      : logits{Shape{rows, counted + padding}, dtype,
               rounded(normal_values(rows * (counted + padding), 1, 3), dtype)},
        targets{Shape{rows}, DType::i32, integer_values(rows, 2, 0, counted)},
        classes(counted) {
    for (size_t r = 3; r < targets.values.size(); r += 4) targets.values[r] = -1;
  }
  int64_t rows() const { return targets.shape[0]; }
  LogProbsAttrs attrs() const { return {.classes = classes}; }
};

std::vector<Rows> cases(DType dtype) {
  return {{1, 1, 0, dtype},
          {5, 65, 3, dtype},
          {40, 3, 0, dtype},
          {7, 97, 31, dtype},
          {3, 2500, 1, dtype}};
}

TEST_CASE("log_probs has each row's cross-entropy, negative and in f32; 0 without a target") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const Rows& c : cases(dtype)) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " rows " << c.rows() << " classes " << c.classes);
      const auto y = run_everywhere({OpKind::log_probs, c.attrs()}, {c.logits, c.targets},
                                    {{Shape{c.rows()}, DType::f32}})[0]
                         .values();
      const auto losses =
          run_everywhere(
              {OpKind::cross_entropy, CrossEntropyAttrs{.classes = c.classes, .by_row = true}},
              {c.logits, c.targets}, {{Shape{c.rows()}, DType::f64}, absent()})[0]
              .values();
      for (size_t r = 0; r < y.size(); ++r) {
        REQUIRE(y[r] == -static_cast<double>(static_cast<float>(losses[r])));
        if (c.targets.values[r] < 0) REQUIRE(y[r] == 0);
      }
    }
}

TEST_CASE("log_probs_grad has each row's gradient times d_y, in place too") {
  Sample sample = sample_if_emulated(2);
  StepState state;
  state.d_loss = 0.37f;
  for (DType dtype : kRunTypes)
    for (const Rows& c : cases(dtype)) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " rows " << c.rows() << " classes " << c.classes);
      const Call back{OpKind::log_probs_grad, c.attrs()};
      const Operand out{c.logits.shape, dtype};
      Operand d_y{Shape{c.rows()}, DType::f32};
      d_y.values.assign(static_cast<size_t>(c.rows()), -static_cast<double>(state.d_loss));
      const auto alike = run_everywhere(back, {d_y, c.logits, c.targets}, {out});
      Call loss{.op = OpKind::cross_entropy, .state = &state};
      loss.attrs = CrossEntropyAttrs{.classes = c.classes};
      const auto expected =
          run_everywhere(loss, {c.logits, c.targets}, {{Shape{1}, DType::f64}, out});
      require_same_bits("the same d_y", alike[0], expected[1]);

      for (size_t r = 0; r < d_y.values.size(); ++r)
        d_y.values[r] *= static_cast<double>(1 << r % 5);
      const auto d_logits = run_everywhere(back, {d_y, c.logits, c.targets}, {out});
      const auto in_place =
          run_everywhere(back, {d_y, c.logits, c.targets}, {{c.logits.shape, dtype, {}, 1}});
      require_same_bits("in place", in_place[0], d_logits[0]);
      const auto one = alike[0].values(), several = d_logits[0].values();
      const auto width = static_cast<size_t>(c.logits.shape[1]);
      for (size_t i = 0; i < one.size(); ++i)
        REQUIRE(several[i] == Approx(one[i] * (1 << i / width % 5)).epsilon(1e-2).margin(1e-6));
    }
}

// The case with several targets of each row, of which some are equal; every fourth row has none.
Operand several_targets(const Rows& c, int64_t count) {
  Operand targets{Shape{c.rows(), count}, DType::i32,
                  integer_values(c.rows() * count, 5, 0, c.classes)};
  for (size_t i = 0; i < targets.values.size(); ++i) {
    const size_t row = i / static_cast<size_t>(count), j = i % static_cast<size_t>(count);
    if (row % 4 == 3 || j % 5 == 4) targets.values[i] = -1;
  }
  return targets;
}

// Returns the operand with each row's target `j` alone.
Operand one_target(const Operand& targets, int64_t j) {
  Operand one{Shape{targets.shape[0]}, DType::i32};
  for (int64_t r = 0; r < targets.shape[0]; ++r)
    one.values.push_back(targets.values[static_cast<size_t>(r * targets.shape[1] + j)]);
  return one;
}

TEST_CASE("log_probs of several targets has the bits of each alone") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const Rows& c : cases(dtype)) {
      if (!sample.takes()) continue;
      for (const int64_t count : {2, 7}) {
        INFO(name_of(dtype) << " rows " << c.rows() << " classes " << c.classes << " of " << count);
        const Operand targets = several_targets(c, count);
        const auto y = run_everywhere({OpKind::log_probs, c.attrs()}, {c.logits, targets},
                                      {{targets.shape, DType::f32}})[0]
                           .values();
        for (int64_t j = 0; j < count; ++j) {
          const auto alone =
              run_everywhere({OpKind::log_probs, c.attrs()}, {c.logits, one_target(targets, j)},
                             {{Shape{c.rows()}, DType::f32}})[0]
                  .values();
          for (size_t r = 0; r < alone.size(); ++r)
            REQUIRE(y[r * static_cast<size_t>(count) + static_cast<size_t>(j)] == alone[r]);
        }
      }
    }
}

TEST_CASE("log_probs_grad of several targets is the sum of their gradients, in place too") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const Rows& c : cases(dtype)) {
      if (!sample.takes()) continue;
      constexpr int64_t kCount = 7;
      INFO(name_of(dtype) << " rows " << c.rows() << " classes " << c.classes);
      const Operand targets = several_targets(c, kCount), out{c.logits.shape, dtype};
      const Operand d_y{targets.shape, DType::f32, normal_values(c.rows() * kCount, 6, 1)};
      const Call back{OpKind::log_probs_grad, c.attrs()};
      const auto d_logits = run_everywhere(back, {d_y, c.logits, targets}, {out});
      const auto in_place =
          run_everywhere(back, {d_y, c.logits, targets}, {{c.logits.shape, dtype, {}, 1}});
      require_same_bits("in place", in_place[0], d_logits[0]);
      const auto all = d_logits[0].values();
      std::vector<double> sums(all.size());
      // Logits in 16 bits are exact in fp32, whose gradients are not rounded.
      const Operand wide{c.logits.shape, DType::f32, c.logits.values};
      for (int64_t j = 0; j < kCount; ++j) {
        Operand slope{Shape{c.rows()}, DType::f32};
        for (int64_t r = 0; r < c.rows(); ++r)
          slope.values.push_back(d_y.values[static_cast<size_t>(r * kCount + j)]);
        const auto one = run_everywhere(back, {slope, wide, one_target(targets, j)},
                                        {{c.logits.shape, DType::f32}})[0]
                             .values();
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
      }
      const double rounding = dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 8e-3 : 1e-3;
      for (size_t i = 0; i < all.size(); ++i)
        REQUIRE(all[i] == Approx(sums[i]).epsilon(rounding).margin(1e-5));
    }
}

}  // namespace
}  // namespace dstrain::parity
