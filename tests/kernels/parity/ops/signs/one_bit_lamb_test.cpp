// The kernels of 1-bit Lamb, in the order in which its steps use them, against the numpy model of
// tests/golden/signs/make_one_bit_lamb.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/core/isa/isa.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/signs/sign_values.h"
#include "tests/support/source_file.h"

namespace dstrain::parity {
namespace {

constexpr int64_t kWarmUp = 3;
constexpr float kEps = 1e-5f, kDecays[] = {0.1f, 0};

// All state, of a unit with two parameters of equal size.
struct OneBitLamb : SignRanks {
  int64_t half;
  Values p, m, v, fresh, average = Values(2), factor = Values(2), scale = Values(2);

  OneBitLamb(int64_t of_ranks, int64_t of_part)
      : SignRanks(of_ranks, of_part), half(n / 2), p(sign_values(7, 0, n, false)) {
    m = v = fresh = Values(static_cast<size_t>(n));
  }

  Values of(const Values& all, size_t k) const {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(k) * half;
    return {begin, begin + half};
  }
  void set(Values& all, size_t k, const Values& part_of_it) const {
    std::ranges::copy(part_of_it, all.begin() + static_cast<ptrdiff_t>(k) * half);
  }
  static double squares(const Values& x, const StepState& state) {
    return run_op(OpKind::sum_squares, {}, state, {flat(x)}, {{Shape{1}, DType::f64}})[0]
        .values()[0];
  }

  void warm_up(const std::vector<Values>& gradients, const StepState& state) {
    Values g(static_cast<size_t>(n), 0), direction(g), sums;
    for (const Values& own : gradients)
      for (size_t i = 0; i < g.size(); ++i)
        g[i] = static_cast<float>(g[i]) + static_cast<float>(own[i]);
    for (size_t k = 0; k < 2; ++k) {
      const auto out = run_op(OpKind::lamb_direction,
                              LambDirectionAttrs{.eps = kEps, .weight_decay = kDecays[k]}, state,
                              {flat(of(g, k)), flat(of(p, k))},
                              {flat(of(m, k)), flat(of(v, k)), nothing_yet(half)});
      set(m, k, out[0].values());
      set(v, k, out[1].values());
      set(direction, k, out[2].values());
      sums.push_back(squares(of(p, k), state));
      sums.push_back(squares(of(direction, k), state));
    }
    const Operand pairs{Shape{4}, DType::f64, sums};
    average = run_op(OpKind::lamb_average, LambAverageAttrs{}, state, {pairs}, {flat(average)})[0]
                  .values();
    for (int64_t k = 0; k < 2; ++k)
      set(p, static_cast<size_t>(k),
          run_op(OpKind::lamb, LambAttrs{.parameter = k, .parameters = 2}, state,
                 {flat(of(direction, static_cast<size_t>(k))), pairs},
                 {flat(of(p, static_cast<size_t>(k))), absent()})[0]
              .values());
  }

  void frozen(const std::vector<Values>& gradients, const StepState& state) {
    std::vector<Values> momenta(static_cast<size_t>(ranks), Values(static_cast<size_t>(n)));
    for (size_t k = 0; k < 2; ++k) {
      scale[k] = run_op(OpKind::momentum_scale, {}, state, {flat(of(m, k)), flat({factor[k]})},
                        {flat({scale[k]})})[0]
                     .values()[0];
      for (size_t r = 0; r < momenta.size(); ++r)
        set(momenta[r], k,
            run_op(OpKind::scaled_momentum, LocalMomentumAttrs{.ranks = ranks}, state,
                   {flat(of(gradients[r], k)), flat(of(v, k)), flat(of(m, k)), flat({scale[k]})},
                   {nothing_yet(half)})[0]
                .values());
    }
    const Values sum = ranks == 1 ? momenta[0] : exchange(momenta, {}, state);
    Values direction(sum), largest, sums(4, 0);
    for (size_t k = 0; k < 2; ++k) {
      const auto out = run_op(
          OpKind::frozen_lamb_direction, FrozenLambAttrs{kEps, kDecays[k]}, state,
          {flat(of(v, k)), flat(of(p, k)), flat({scale[k]}), flat({factor[k]})},
          {flat(of(sum, k)), flat(of(m, k)), flat(of(fresh, k)), nothing_yet(half), flat({0})});
      set(m, k, out[1].values());
      set(fresh, k, out[2].values());
      set(direction, k, out[3].values());
      largest.push_back(out[4].values()[0]);
      if (kDecays[k] == 0) continue;
      sums[2 * k] = squares(out[0].values(), state);
      sums[2 * k + 1] = squares(out[3].values(), state);
    }
    factor = run_op(OpKind::lamb_factor, LambFactorAttrs{}, state,
                    {flat(largest), {Shape{4}, DType::f64, sums}}, {flat(factor)})[0]
                 .values();
    for (size_t k = 0; k < 2; ++k)
      set(p, k,
          run_op(OpKind::frozen_lamb, {}, state,
                 {flat(of(direction, k)), flat({average[k]}), flat({factor[k]})},
                 {flat(of(p, k)), absent()})[0]
              .values());
  }
};

StepState step_state() {
  StepState state;
  state.lr = 0.01f;
  state.beta1 = 0.9;
  state.beta2 = 0.95;
  state.grad_scale = 0.5f;
  return state;
}

// Returns the factor of a parameter after a step.
double factor_after(double last, double largest, double plain, double decayed) {
  return run_op(OpKind::lamb_factor,
                LambFactorAttrs{.smallest = 0.5f, .largest = 4, .threshold = 0.25f}, step_state(),
                {flat({largest}), {Shape{2}, DType::f64, {plain, decayed}}}, {flat({last})})[0]
      .values()[0];
}

}  // namespace

TEST_CASE("1-bit Lamb: what travels, and all state, has the bits of the numpy model") {
  if (max_isa() < Isa::avx2) return;  // the model fuses multiply-add, and the baseline does not
  const auto cases =
      nlohmann::json::parse(std::ifstream(source_file("tests/golden/signs/one_bit_lamb.json")));
  REQUIRE(cases.size() == 12);
  Sample sample = sample_if_emulated(2);
  for (const auto& c : cases) {
    if (!sample.takes()) continue;
    OneBitLamb all(c["ranks"], c["part"]);
    REQUIRE(c["steps"].size() == 8);
    for (int64_t step = 0; step < 8; ++step) {
      INFO(all.ranks << " ranks, parts of " << all.part << ", step " << step);
      const auto& expected = c["steps"][static_cast<size_t>(step)];
      all.sent = all.forward = "";
      const auto gradients = gradients_of(all.ranks, step, all.n, c["zeros"]);
      if (step < kWarmUp)
        all.warm_up(gradients, step_state());
      else
        all.frozen(gradients, step_state());
      CHECK(crc32(all.sent) == expected["sent"]);
      CHECK(crc32(all.forward) == expected["forward"]);
      CHECK(crc_of({all.p}) == expected["master"]);
      CHECK(crc_of({all.m}) == expected["m"]);
      CHECK(crc_of({all.v}) == expected["v"]);
      CHECK(crc_of({all.fresh}) == expected["fresh"]);
      CHECK(crc_of({all.average}) == expected["average"]);
      CHECK(crc_of({all.factor}) == expected["factor"]);
      CHECK(crc_of({all.scale}) == expected["scale"]);
      CHECK(crc_of(all.worker) == expected["worker"]);
      CHECK(crc_of(all.server) == expected["server"]);
    }
  }
}

TEST_CASE("1-bit Lamb's factor is mixed with the share of weight decay, and limited") {
  CHECK(factor_after(1, 1.125, 0, 0) == 1.125);
  CHECK(factor_after(0, 1.125, 0, 0) == 1.125);
  CHECK(factor_after(1, 9, 0, 0) == 1.25);
  CHECK(factor_after(2, 0, 0, 0) == 1.5);
  CHECK(factor_after(3.5, 9, 0, 0) == 4);
  CHECK(factor_after(0.5, 0, 0, 0) == 0.5);
  CHECK(factor_after(1, 1.25, 1, 4) == 1.125);
  CHECK(factor_after(1, 1.25, 4, 1) == 1.25);
  CHECK(factor_after(1, HUGE_VAL, 0, 1) == 1);
  CHECK(factor_after(1, HUGE_VAL, 1, 4) == 1.25);
}

TEST_CASE("1-bit Lamb: a momentum's scale is set in the first step alone, and is a number") {
  const auto scale_of = [](const Values& m, double factor, double before) {
    return run_op(OpKind::momentum_scale, {}, step_state(), {flat(m), flat({factor})},
                  {flat({before})})[0]
        .values()[0];
  };
  CHECK(scale_of({2, -2, 2}, 0, 0) == 0.5);
  CHECK(scale_of({2, -2, 2}, 1, 7) == 7);
  CHECK(scale_of({0, 0}, 0, 0) == 1);
  CHECK(scale_of({1e-44}, 0, 0) == 0x1p100);
}

TEST_CASE("1-bit Lamb: a parameter without an average goes on with a trust ratio of 1") {
  for (const DType copy : kRunTypes) {
    const auto moved = [&](double average) {
      const auto out = run_op(
          OpKind::frozen_lamb, {}, step_state(), {flat(Values(97, 1)), flat({average}), flat({2})},
          {flat(Values(97, 0)), copy == DType::f32 ? absent() : Operand{Shape{97}, copy}});
      if (copy != DType::f32) CHECK(out[1].values() == rounded(out[0].values(), copy));
      return out[0].values()[96];
    };
    CHECK(moved(0) == -static_cast<double>(0.02f));
    CHECK(moved(0.5) == -static_cast<double>(0.01f));
  }
}

TEST_CASE("1-bit Lamb: a skipped step changes no state, whatever it is given") {
  StepState state = step_state();
  state.skip = 1;
  const Values nan(97, std::nan("")), x = rounded(normal_values(97, 1), DType::f32), zeros(97, 0);
  const Operand bad{Shape{2}, DType::f64, {std::nan(""), std::nan("")}};
  const auto kept = [&](OpKind op, const std::vector<Operand>& in) {
    CHECK(run_op(op, {}, state, in, {flat({3})})[0].values() == Values{3});
  };
  kept(OpKind::lamb_average, {bad});
  kept(OpKind::momentum_scale, {flat(nan), flat({0})});
  kept(OpKind::lamb_factor, {flat({std::nan("")}), bad});
  CHECK(run_op(OpKind::scaled_momentum, {}, state, {flat(nan), flat(x), flat(x), flat({1})},
               {flat(x)})[0]
            .values() == x);
  const auto direction =
      run_op(OpKind::frozen_lamb_direction, {}, state, {flat(x), flat(x), flat({1}), flat({0})},
             {flat(nan), flat(x), flat(x), flat(nan), flat({0})});
  CHECK(direction[0].values() == zeros);
  CHECK(direction[1].values() == x);
  CHECK(direction[2].values() == x);
  CHECK(direction[3].values() == zeros);
  CHECK(direction[4].values() == Values{0});
  CHECK(run_op(OpKind::frozen_lamb, {}, state, {flat(nan), flat({1}), flat({1})},
               {flat(x), absent()})[0]
            .values() == x);
}

TEST_CASE(
    "1-bit Lamb: slices of a unit have the largest of their ratios, and the sum of their sums") {
  const LambFactorAttrs attrs{.smallest = 0.5f, .largest = 4, .threshold = 1};
  const Operand ratios{Shape{3, 2}, DType::f32, {1, 1.5, 1.75, 0, 1.25, 0.5}};
  const Operand sums{Shape{2, 4}, DType::f64, {0, 0, 1, 3, 0, 0, 1, 5}};
  CHECK(run_op(OpKind::lamb_factor, attrs, step_state(), {ratios, sums}, {flat({1, 1})})[0]
            .values() == Values{1.75, 1.25});
}

TEST_CASE("scaled_momentum goes by bits, and by what came back from ranks, to the bit") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {8, 104, 40000}) {
      const Operand grad{Shape{n}, dtype, rounded(normal_values(n, 1), dtype)};
      Values v(static_cast<size_t>(n), 1), came = rounded(normal_values(n, 2), DType::f32), m;
      for (size_t i = 0; i < v.size(); i += 5) v[i] = 0;
      for (size_t i = 0; i < v.size(); ++i)
        m.push_back(v[i] > 0 ? static_cast<float>(came[i]) / 3.1f : 0);
      const StepState state = step_state();
      const std::string bits =
          run_op(OpKind::positive_bits, {}, state, {flat(v)}, {packed_of({n / 8})})[0].raw();
      const Operand scale = flat({static_cast<double>(3.1f)});
      const auto expected = run_op(OpKind::scaled_momentum, LocalMomentumAttrs{.ranks = 3}, state,
                                   {grad, flat(v), flat(m), scale}, {nothing_yet(n)})[0]
                                .raw();
      for (const Operand& second : {flat(v), packed_of({n / 8}, bits)})
        CHECK(run_op(OpKind::scaled_momentum, LocalMomentumAttrs{.ranks = 3, .of_scaled = true},
                     state, {grad, second, flat(came), scale}, {nothing_yet(n)})[0]
                  .raw() == expected);
    }
}

TEST_CASE("scaled_momentum reads gradients of every type") {
  for (const DType dtype : kRunTypes) {
    const Values g = rounded(normal_values(700, 1), dtype),
                 m = rounded(normal_values(700, 2), DType::f32);
    Values v(700, 1);
    v[5] = 0;
    const Values x =
        run_op(OpKind::scaled_momentum, LocalMomentumAttrs{.ranks = 2}, step_state(),
               {{Shape{700}, dtype, g}, flat(v), flat(m), flat({4})}, {nothing_yet(700)})[0]
            .values();
    Values expected;
    for (size_t i = 0; i < g.size(); ++i)
      expected.push_back(v[i] > 0 ? 4 * (0.9 * m[i] / 2 + 0.1 * 0.5 * g[i]) : 0);
    require_close("x", x, expected, {1e-6, 1e-6});
  }
}

}  // namespace dstrain::parity
