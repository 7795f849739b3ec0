// log_probs and log_probs_grad against cross_entropy, whose losses and gradient they have row by row.
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

// Rows of logits, of which those behind `classes` do not count; every fourth row has no target.
struct Rows {
  Operand logits, targets;
  int64_t classes;

  Rows(int64_t rows, int64_t classes_, int64_t padding, DType dtype)
      : logits{Shape{rows, classes_ + padding}, dtype,
               rounded(normal_values(rows * (classes_ + padding), 1, 3), dtype)},
        targets{Shape{rows}, DType::i32, integer_values(rows, 2, 0, classes_)},
        classes(classes_) {
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

}  // namespace
}  // namespace dstrain::parity
