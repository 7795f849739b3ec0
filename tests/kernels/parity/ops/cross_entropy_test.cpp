#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

struct Loss {
  double loss = 0;
  Values gradient;

  Loss(const Values& x, const Values& targets, int64_t v, double d_loss,
       const CrossEntropyAttrs& attrs = {})
      : gradient(x.size()) {
    const auto share = static_cast<double>(attrs.smoothing), z = static_cast<double>(attrs.z_loss);
    for (size_t r = 0; r < targets.size(); ++r) {
      if (targets[r] < 0) continue;
      const double* row = x.data() + static_cast<int64_t>(r) * v;
      const double top = *std::max_element(row, row + v);
      double total = 0;
      for (int64_t i = 0; i < v; ++i) total += std::exp(row[i] - top);
      const auto t = static_cast<int64_t>(targets[r]);
      const double log_sum = std::log(total) + top;
      double target = (1 - share) * row[t];
      for (int64_t i = 0; i < v; ++i) target += share / static_cast<double>(v) * row[i];
      loss += log_sum - target + z * log_sum * log_sum;
      for (int64_t i = 0; i < v; ++i)
        gradient[static_cast<size_t>(static_cast<int64_t>(r) * v + i)] =
            (std::exp(row[i] - top) / total * (1 + 2 * z * log_sum) -
             share / static_cast<double>(v) - (i == t ? 1 - share : 0)) *
            d_loss;
    }
  }
};

struct Shapes {
  int64_t r, v;
};

// The largest errors of loss and gradient that rounding explains. u = 2^-24 is the unit roundoff of f32.
//   exponential  x - top and its product with log2(e) are rounded: 3u |x - top|, and exp(z + e) = exp(z) exp(e), so this
//                is a relative error; exp itself has 2^-22: E_i = expm1(3u |x_i - top|) + 2^-22.
//   sum          a chain adds up to 1024 elements (kernels/cpu/memory_bound/losses/cross_entropy.cpp), and rescales what it has where
//                a larger element follows: S = sum_i p_i E_i + 2u (min(V, 1024) + 8).
//   loss         the logarithm of the sum, in f64: S for each row, whatever the loss. It is about 0 where one class has
//                all the weight, as with one to three classes, so no share of the loss bounds it.
//   gradient     d_loss (p_i - [i = target]): p_i (E_i + S), and 4u of p_i, of the difference and of the product. Where
//                p is almost 1, the difference is small and the error of p is not. Then r |d| and half of the smallest
//                number where the result is rounded to the run's dtype.
struct LossBound {
  double loss = 0;
  Values gradient;

  LossBound(const Values& x, const Values& targets, int64_t v, double d_loss, DType dtype)
      : gradient(x.size()) {
    constexpr double kUnit = 0x1p-24;
    const Tolerance rounding = rounding_of(dtype);
    for (size_t r = 0; r < targets.size(); ++r) {
      if (targets[r] < 0) continue;
      const auto begin = r * static_cast<size_t>(v), end = begin + static_cast<size_t>(v);
      const double top = *std::max_element(&x[begin], &x[begin] + v);
      const auto error = [&](size_t i) { return std::expm1(3 * kUnit * (top - x[i])) + 0x1p-22; };
      double total = 0, errors = 0;
      for (size_t i = begin; i < end; ++i) {
        total += std::exp(x[i] - top);
        errors += std::exp(x[i] - top) * error(i);
      }
      const double sum =
          errors / total + 2 * kUnit * static_cast<double>(std::min<int64_t>(v, 1024) + 8);
      loss += sum;
      for (size_t i = begin; i < end; ++i) {
        const double p = std::exp(x[i] - top) / total;
        const double hit = static_cast<double>(i - begin) == targets[r] ? 1 : 0;
        const double f32 = p * (error(i) + sum) + 4 * kUnit * (p + std::abs(p - hit));
        const double d = std::abs(p - hit) * std::abs(d_loss);
        gradient[i] = f32 * std::abs(d_loss) + rounding.relative * (d + f32) + rounding.absolute;
      }
    }
  }
};

Values targets_of(const Shapes& s) {
  Values targets = integer_values(s.r, 3, 0, s.v);
  targets.back() = static_cast<double>(s.v - 1);
  for (size_t i = 1; i < targets.size(); i += 3) targets[i] = -1;
  return targets;
}

TEST_CASE("the weight of a loss is that of its gradient alone") {
  StepState state;
  state.d_loss = 0.25f;
  const Operand logits{Shape{5, 65}, DType::f32, rounded(normal_values(5 * 65, 1, 3), DType::f32)};
  const Operand targets{Shape{5}, DType::i32, targets_of({5, 65})};
  const std::vector<Operand> out{{Shape{1}, DType::f64}, {logits.shape, DType::f32}};
  Call call{OpKind::cross_entropy};
  call.state = &state;
  call.attrs = CrossEntropyAttrs{.weight = 3};
  const auto weighted = run_everywhere(call, {logits, targets}, out);
  call.attrs = CrossEntropyAttrs{};
  const auto plain = run_everywhere(call, {logits, targets}, out);
  state.d_loss = 0.75f;
  const auto larger = run_everywhere(call, {logits, targets}, out);
  CHECK(weighted[0].values() == plain[0].values());
  CHECK(weighted[1].values() == larger[1].values());
  CHECK(weighted[1].values() != plain[1].values());
}

TEST_CASE("the factor of a loss multiplies it and its gradient") {
  StepState state;
  state.d_loss = 0.25f;
  const Operand logits{Shape{5, 65}, DType::f32, rounded(normal_values(5 * 65, 1, 3), DType::f32)};
  const Operand targets{Shape{5}, DType::i32, targets_of({5, 65})};
  const std::vector<Operand> out{{Shape{1}, DType::f64}, {logits.shape, DType::f32}};
  Call call{OpKind::cross_entropy};
  call.state = &state;
  const auto plain = run_everywhere(call, {logits, targets}, out);
  const Operand half{Shape{1}, DType::f32, {0.5}};
  const auto halved = run_everywhere(call, {logits, targets, absent(), half}, out);
  CHECK(halved[0].values()[0] == Approx(0.5 * plain[0].values()[0]).epsilon(1e-12));
  Values expected = plain[1].values();
  for (double& x : expected) x *= 0.5;
  CHECK(halved[1].values() == expected);
}

TEST_CASE("a smoothed loss, and one with a z-loss, are those of their formulas") {
  Sample sample = sample_if_emulated(2);
  StepState state;
  state.d_loss = 0.37f;
  for (DType dtype : kRunTypes)
    for (const CrossEntropyAttrs& attrs :
         {CrossEntropyAttrs{.smoothing = 0.1f}, CrossEntropyAttrs{.z_loss = 1e-3f},
          CrossEntropyAttrs{.smoothing = 0.9f, .z_loss = 0.5f}})
      for (const Shapes& s : {Shapes{1, 1}, {40, 3}, {5, 65}, {3, 97}, {2, 50257}}) {
        if (!sample.takes()) continue;
        INFO(name_of(dtype) << " R " << s.r << " V " << s.v << " smoothing " << attrs.smoothing
                            << " z " << attrs.z_loss);
        const Values x = rounded(normal_values(s.r * s.v, 1, 3), dtype);
        const Operand logits{Shape{s.r, s.v}, dtype, x};
        const Operand targets{Shape{s.r}, DType::i32, targets_of(s)};
        const Loss expected(x, targets.values, s.v, static_cast<double>(state.d_loss), attrs);
        Call call{OpKind::cross_entropy};
        call.state = &state;
        call.attrs = attrs;
        const auto got = run_everywhere(call, {logits, targets},
                                        {{Shape{1}, DType::f64}, {logits.shape, dtype}});
        // The bounds of the plain loss, times the slope of the z-loss; the sum of the logits is off by an f32 chain's roundings.
        LossBound bound(x, targets.values, s.v, static_cast<double>(state.d_loss), DType::f32);
        double largest = 0;
        for (const double value : x) largest = std::max(largest, std::abs(value));
        const double log_sum = largest + std::log(static_cast<double>(s.v));
        const double slope = 1 + 2 * static_cast<double>(attrs.z_loss) * log_sum;
        bound.loss = slope * bound.loss + static_cast<double>(s.r) * largest * 0x1p-13;
        const Tolerance rounding = rounding_of(dtype);
        for (size_t i = 0; i < bound.gradient.size(); ++i)
          bound.gradient[i] = slope * bound.gradient[i] +
                              static_cast<double>(state.d_loss) * 0x1p-23 + rounding.absolute +
                              rounding.relative * std::abs(expected.gradient[i]);
        require_within("loss", got[0].values(), {expected.loss}, {bound.loss});
        require_within("d_logits", got[1].values(), expected.gradient, bound.gradient);
      }
}

TEST_CASE("cross_entropy returns the summed loss and its gradient, in place or beside") {
  Sample sample = sample_if_emulated(2);
  StepState state;
  state.d_loss = 0.37f;
  for (DType dtype : kRunTypes)
    for (const Shapes& s : {Shapes{1, 1},
                            {40, 2},
                            {40, 3},
                            {5, 65},
                            {3, 97},
                            {4, 16},
                            {150, 300},
                            {2, 50257},
                            {2, 50304}}) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " R " << s.r << " V " << s.v);
      const Values x = rounded(normal_values(s.r * s.v, 1, 3), dtype);
      const Operand logits{Shape{s.r, s.v}, dtype, x};
      const Operand targets{Shape{s.r}, DType::i32, targets_of(s)};
      const Operand loss{Shape{1}, DType::f64};
      const Loss expected(x, targets.values, s.v, static_cast<double>(state.d_loss));
      Call call{OpKind::cross_entropy};
      call.state = &state;
      const auto beside = run_everywhere(call, {logits, targets}, {loss, {logits.shape, dtype}});
      const LossBound bound(x, targets.values, s.v, static_cast<double>(state.d_loss), dtype);
      require_within("loss", beside[0].values(), {expected.loss}, {bound.loss});
      require_within("d_logits", beside[1].values(), expected.gradient, bound.gradient);
      const auto in_place =
          run_everywhere(call, {logits, targets}, {loss, {logits.shape, dtype, {}, 0}});
      require_same_bits("loss in place", in_place[0], beside[0]);
      require_same_bits("d_logits in place", in_place[1], beside[1]);
      call.state = nullptr;
      const auto alone = run_everywhere(call, {logits, targets}, {loss, absent()});
      require_same_bits("loss alone", alone[0], beside[0]);
    }
}

TEST_CASE("the bound of cross_entropy's errors is less than what a fault changes") {
  for (DType dtype : kRunTypes)
    for (const Shapes& s : {Shapes{40, 2}, {40, 3}, {20, 300}}) {
      INFO(name_of(dtype) << " R " << s.r << " V " << s.v);
      const Values x = rounded(normal_values(s.r * s.v, 1, 3), dtype), targets = targets_of(s);
      const Loss expected(x, targets, s.v, 0.37);
      const LossBound bound(x, targets, s.v, 0.37, dtype);
      const auto ratio = [&](const Loss& loss) {
        return std::min(excess_of({loss.loss}, {expected.loss}, {bound.loss}).ratio,
                        excess_of(loss.gradient, expected.gradient, bound.gradient).ratio);
      };
      Values scaled = x, missing = x;
      for (double& z : scaled) z *= 1.01;
      for (size_t i = 1; i < x.size(); i += static_cast<size_t>(s.v)) missing[i] = -HUGE_VAL;
      CHECK(ratio(Loss(scaled, targets, s.v, 0.37)) > 2);
      // The second class is left out of the sums of rows that have another target.
      Values others = targets;
      for (double& t : others) t = t == 1 ? 0 : t;
      const Loss right(x, others, s.v, 0.37), wrong(missing, others, s.v, 0.37);
      const LossBound of_others(x, others, s.v, 0.37, dtype);
      CHECK(excess_of({wrong.loss}, {right.loss}, {of_others.loss}).ratio > 10);
      CHECK(excess_of(wrong.gradient, right.gradient, of_others.gradient).ratio > 10);
    }
}

TEST_CASE("the gradient of cross_entropy agrees with differences and sums to zero in each row") {
  const Shapes s{5, 33};
  StepState state;
  state.d_loss = 1;
  const Values x = rounded(normal_values(s.r * s.v, 1, 2), DType::f32), targets = targets_of(s);
  Call call{OpKind::cross_entropy};
  call.state = &state;
  const auto out =
      run_at_offset(call, {{Shape{s.r, s.v}, DType::f32, x}, {Shape{s.r}, DType::i32, targets}},
                    {{Shape{1}, DType::f64}, {Shape{s.r, s.v}}}, 1);
  const Values gradient = out[1].values(), direction = normal_values(s.r * s.v, 5);
  const double slope = directional_derivative(
      [&](const Values& z) { return Loss(z, targets, s.v, 1).loss; }, x, direction);
  CHECK(dot(gradient, direction) == Approx(slope).epsilon(1e-5));
  for (int64_t r = 0; r < s.r; ++r) {
    double total = 0;
    for (int64_t i = 0; i < s.v; ++i) total += gradient[static_cast<size_t>(r * s.v + i)];
    CHECK(std::abs(total) < 1e-6);
  }
}

TEST_CASE(
    "cross_entropy of padded rows reads nothing of the padding, and its gradient there is 0") {
  struct Padded {
    int64_t r, v, width;
  };
  StepState state;
  state.d_loss = 0.37f;
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const Padded& s :
         {Padded{1, 1, 8}, {5, 65, 128}, {7, 97, 99}, {150, 300, 304}, {2, 50257, 50304}}) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " R " << s.r << " V " << s.v << " of " << s.width);
      const Values x = rounded(normal_values(s.r * s.v, 1, 3), dtype);
      Values wide(static_cast<size_t>(s.r * s.width), std::nan(""));
      for (int64_t r = 0; r < s.r; ++r)
        std::copy_n(x.begin() + r * s.v, s.v, wide.begin() + r * s.width);
      const Operand targets{Shape{s.r}, DType::i32, targets_of({s.r, s.v})};
      const Operand loss{Shape{1}, DType::f64};
      Call call{OpKind::cross_entropy};
      call.state = &state;
      const auto expected = run_everywhere(call, {{Shape{s.r, s.v}, dtype, x}, targets},
                                           {loss, {Shape{s.r, s.v}, dtype, {}, 0}});
      call.attrs = CrossEntropyAttrs{s.v};
      const Shape shape{s.r, s.width};
      const auto padded =
          run_everywhere(call, {{shape, dtype, wide}, targets}, {loss, {shape, dtype, {}, 0}});
      require_same_bits("loss", padded[0], expected[0]);
      const Values gradient = padded[1].values(), narrow = expected[1].values();
      for (int64_t i = 0; i < s.r * s.width; ++i) {
        const int64_t r = i / s.width, column = i % s.width;
        const double want = column < s.v ? narrow[static_cast<size_t>(r * s.v + column)] : 0.0;
        if (gradient[static_cast<size_t>(i)] != want) FAIL("row " << r << ", column " << column);
      }
    }
}

TEST_CASE("losses of rows, and a loss that adds those of earlier rows, have the bits of all rows") {
  Sample sample = sample_if_emulated(1);
  StepState state;
  state.d_loss = 0.37f;
  for (DType dtype : kRunTypes)
    for (const Shapes& s : {Shapes{5, 65}, {150, 300}, {700, 33}}) {
      if (!sample.takes()) continue;
      const Values x = rounded(normal_values(s.r * s.v, 1, 3), dtype), targets = targets_of(s);
      Call call{OpKind::cross_entropy};
      call.state = &state;
      call.accumulate = true;
      const Operand loss{Shape{1}, DType::f64, {7.25}};
      const auto whole =
          run_at_offset(call, {{Shape{s.r, s.v}, dtype, x}, {Shape{s.r}, DType::i32, targets}},
                        {loss, {Shape{s.r, s.v}, dtype}}, 0);
      for (const int64_t first : {int64_t{1}, s.r / 2, s.r - 1}) {
        INFO(name_of(dtype) << " R " << s.r << " V " << s.v << " first " << first);
        const auto part = [&](int64_t begin, int64_t end) {
          return std::vector<Operand>{
              {Shape{end - begin, s.v}, dtype, {x.begin() + begin * s.v, x.begin() + end * s.v}},
              {Shape{end - begin}, DType::i32, {targets.begin() + begin, targets.begin() + end}}};
        };
        Call by_row = call;
        by_row.accumulate = false;
        by_row.attrs = CrossEntropyAttrs{.by_row = true};
        const auto rows = run_everywhere(by_row, part(0, first),
                                         {{Shape{first}, DType::f64}, {Shape{first, s.v}, dtype}});
        std::vector<Operand> in = part(first, s.r);
        in.push_back({Shape{first}, DType::f64, rows[0].values()});
        const auto rest = run_at_offset(call, in, {loss, {Shape{s.r - first, s.v}, dtype}}, 1);
        require_same_bits("loss", rest[0], whole[0]);
        CHECK(rows[1].raw() + rest[1].raw() == whole[1].raw());
        for (int64_t r = 0; r < first; ++r)
          if (targets[static_cast<size_t>(r)] < 0)
            CHECK(rows[0].values()[static_cast<size_t>(r)] == 0);
      }
    }
}

TEST_CASE("cross_entropy adds to the loss when it accumulates") {
  Call call{OpKind::cross_entropy};
  call.accumulate = true;
  const auto out =
      run_at_offset(call, {{Shape{1, 2}, DType::f32, {0, 0}}, {Shape{1}, DType::i32, {1}}},
                    {{Shape{1}, DType::f64, {10}}, absent()}, 0);
  CHECK(out[0].values()[0] == Approx(10 + std::log(2.0)).epsilon(1e-7));
}

TEST_CASE("cross_entropy of huge logits is finite, of non-finite ones is not") {
  const auto loss_of = [](const Values& x) {
    const auto v = static_cast<int64_t>(x.size());
    return run_at_offset({OpKind::cross_entropy},
                         {{Shape{1, v}, DType::f32, x}, {Shape{1}, DType::i32, {0}}},
                         {{Shape{1}, DType::f64}, absent()}, 0)[0]
        .values()[0];
  };
  CHECK(loss_of({3e38, -3e38, 0}) == 0);
  CHECK(loss_of({-1000, 1000}) == 2000);
  Values x(40, 1.0);
  for (size_t at : {0u, 17u, 39u}) {
    Values bad = x;
    bad[at] = std::nan("");
    CHECK(std::isnan(loss_of(bad)));
    bad[at] = HUGE_VAL;
    CHECK_FALSE(std::isfinite(loss_of(bad)));
  }
}

}  // namespace
}  // namespace dstrain::parity
