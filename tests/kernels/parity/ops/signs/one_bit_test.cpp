// Kernels of optimizers whose ranks send signs: whole steps against the numpy models of tests/golden/signs/make_signs.py,
// and each kernel by its definition.
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/core/isa/isa.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/signs/sign_models.h"
#include "tests/support/source_file.h"

namespace dstrain::parity {
namespace {

// Checks the cases of a model that numpy has computed.
template <class Model>
void check_model(const nlohmann::json& cases, size_t count, size_t steps, Sample sample) {
  REQUIRE(cases.size() == count);
  for (const auto& c : cases) {
    if (!sample.takes()) continue;
    Model all(c["ranks"], c["part"]);
    REQUIRE(c["steps"].size() == steps);
    for (int64_t step = 0; step < static_cast<int64_t>(steps); ++step) {
      INFO(all.ranks << " ranks, parts of " << all.part << ", step " << step);
      Gradients gradients;
      for (int64_t r = 0; r < all.ranks; ++r)
        gradients.push_back(sign_values(r, step, all.n, c["zeros"]));
      all.sent = all.forward = "";
      all.step(step, gradients);
      Crcs crcs = all.crcs();
      crcs.insert({{"sent", crc32(all.sent)},
                   {"forward", crc32(all.forward)},
                   {"worker", crc_of(all.worker)},
                   {"server", crc_of(all.server)}});
      CHECK(crcs == c["steps"][static_cast<size_t>(step)].get<Crcs>());
    }
  }
}

Values f32_values(int64_t n, uint64_t seed, double scale = 1) {
  return rounded(normal_values(n, seed, scale), DType::f32);
}

// Returns second moments of which every fifth is 0.
Values second_moments(int64_t n) {
  Values v = rounded(uniform_values(n, 4, 0, 0.1), DType::f32);
  for (size_t i = 0; i < v.size(); i += 5) v[i] = 0;
  return v;
}

Operand copy_of(DType dtype, int64_t n) {
  return dtype == DType::f32 ? absent() : Operand{Shape{n}, dtype};
}

// Returns the factor of a parameter after a step.
double factor_after(double last, double largest, double plain, double decayed) {
  return result_of(OpKind::lamb_factor,
                   LambFactorAttrs{.smallest = 0.5f, .largest = 4, .threshold = 0.25f},
                   model_state(), {flat({largest}), pairs({plain, decayed})}, {flat({last})})[0];
}

}  // namespace

TEST_CASE("optimizers that send signs: what travels, and all state, has the numpy models' bits") {
  const auto models =
      nlohmann::json::parse(std::ifstream(source_file("tests/golden/signs/signs.json")));
  REQUIRE(models.size() == 3);
  check_model<Signs>(models["Signs"], 32, 5, sample_if_emulated(3));
  if (max_isa() < Isa::avx2) return;  // the models fuse multiply-add, and the baseline does not
  check_model<ZeroOneAdam>(models["ZeroOneAdam"], 24, 12, sample_if_emulated(3));
  check_model<OneBitLamb>(models["OneBitLamb"], 12, 8, sample_if_emulated(2));
}

TEST_CASE("optimizers that send signs: a skipped step changes no state, whatever it is given") {
  StepState state = model_state();
  state.skip = 1;
  const int64_t n = 600;
  const Values x = f32_values(n, 1), zeros(n, 0), nan(n, std::nan(""));
  const Operand kept = flat(x), bad = flat(nan), one = flat({1}),
                bad_pairs = pairs({nan[0], nan[0]});
  const std::string nothing(static_cast<size_t>(sign_bytes(n)), '\0'),
      noise(nothing.size(), '\xff');
  const auto outputs = [&](OpKind op, const std::vector<Operand>& in,
                           const std::vector<Operand>& out, const std::vector<Values>& expected) {
    CAPTURE(name_of(op));
    const auto result = run_op(op, {}, state, in, out);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(result[i].values() == expected[i]);
  };
  const Operand packed = packed_of({sign_bytes(n)}, noise);
  outputs(OpKind::quantize_signs, {bad}, {packed, kept}, {bytes_of(nothing), x});
  outputs(OpKind::requantize_signs, {packed_of({1, sign_bytes(n)}, noise)}, {packed, kept},
          {bytes_of(nothing), x});
  outputs(OpKind::dequantize_signs, {packed}, {kept}, {x});
  outputs(OpKind::local_momentum, {bad, kept}, {kept, kept}, {x, x});
  outputs(OpKind::local_momentum, {bad, kept, bad, one}, {kept}, {x});
  outputs(OpKind::frozen_adam, {bad, kept}, {kept, absent()}, {x});
  outputs(OpKind::end_local_steps, {kept}, {kept, kept, kept, absent()}, {x, x, x});
  outputs(OpKind::lamb_average, {bad_pairs}, {flat({3})}, {{3}});
  outputs(OpKind::momentum_scale, {bad, flat({0})}, {flat({3})}, {{3}});
  outputs(OpKind::lamb_factor, {flat({nan[0]}), bad_pairs}, {flat({3})}, {{3}});
  outputs(OpKind::frozen_lamb_direction, {kept, kept, one, flat({0})},
          {bad, kept, kept, bad, flat({0})}, {zeros, x, x, zeros, {0}});
  outputs(OpKind::lamb, {bad, one, one}, {kept, absent()}, {x});
}

TEST_CASE("signs: denormal values come back as their mean magnitude") {
  const Values x = rounded({1e-40, -3e-40, 0, -0.0}, DType::f32);
  const std::string bytes = run_op(OpKind::quantize_signs, {}, StepState{}, {flat(x)},
                                   {packed_of({sign_bytes(4)}), flat(Values(4, 0))})[0]
                                .raw();
  float scale;
  std::memcpy(&scale, bytes.data(), sizeof scale);
  CHECK(scale == Approx(1e-40).epsilon(1e-4));
  CHECK(bytes[4] == 2);
}

TEST_CASE("quantize_signs reads gradients of every type, times the step's scale") {
  StepState state;
  state.grad_scale = 0.25f;
  const int64_t n = 700;
  const std::vector<Operand> outs{packed_of({sign_bytes(n)}), flat(f32_values(n, 2))};
  for (const DType dtype : kRunTypes) {
    const Values x = rounded(normal_values(n, 1), dtype);
    Values scaled = x;
    for (double& value : scaled) value *= 0.25;
    const auto out = run_op(OpKind::quantize_signs, SignAttrs{.gradient = true}, state,
                            {{Shape{n}, dtype, x}}, outs);
    const auto expected = run_op(OpKind::quantize_signs, {}, state, {flat(scaled)}, outs);
    for (size_t i = 0; i < 2; ++i) CHECK(out[i].raw() == expected[i].raw());
  }
}

TEST_CASE("local_momentum is the share of a rank, and 0 where there has been no gradient") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {1, 97, 40000})
      for (const bool scaled : {false, true}) {
        const FlatStep step(2, n, dtype, 0.9, 0.95);
        const Values m = f32_values(n, 3, 0.1), v = second_moments(n),
                     before = f32_values(n, 5, 0.1);
        const LocalMomentumAttrs attrs{.share = 1.0f / 3, .weight = 4};
        const double scale = scaled ? 4 : 1;
        std::vector<Operand> in{step.in(), flat(v)};
        if (scaled) in.insert(in.end(), {flat(m), flat({scale})});
        const std::vector<Operand> outs{scaled ? nothing_yet(n) : flat(m), flat(before)};
        const auto out = run_op(OpKind::local_momentum, attrs, step.state, in, outs);
        Values x, sum = before;
        for (size_t i = 0; i < m.size(); ++i) {
          x.push_back(v[i] > 0 ? scale * (0.9 * m[i] / 3 + (1 - 0.9) * 4 * step.g(i)) : 0);
          sum[i] += 0.01f * x[i];
        }
        require_close("x", out[0].values(), x, {1e-6, 1e-6});
        require_close("sum", out[1].values(), sum, {1e-6, 1e-6});
        in.resize(in.size() + 1, absent());
        CHECK(run_op(OpKind::local_momentum, attrs, step.state, in, {outs[0]})[0].raw() ==
              out[0].raw());
      }
}

TEST_CASE(
    "local_momentum goes by bits of the moment, and by what came back from ranks, to the bit") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {8, 104, 40000}) {
      const FlatStep step(2, n, dtype, 0.9, 0.95);
      const Values came = f32_values(n, 3);
      Values v = second_moments(n), m;
      v[1] = 1e-45;  // the smallest one
      v[2] = -1;
      v[3] = -0.0;
      v[4] = std::nan("");
      for (size_t i = 0; i < v.size(); ++i)
        m.push_back(v[i] > 0 ? static_cast<float>(came[i]) / 3.1f : 0);
      const std::string bits =
          run_op(OpKind::positive_bits, {}, step.state, {flat(v)}, {packed_of({n / 8})})[0].raw();
      for (size_t i = 0; i < v.size(); ++i)
        if ((static_cast<uint8_t>(bits[i / 8]) >> i % 8 & 1) != (v[i] > 0 ? 1 : 0)) FAIL(i);
      const Operand scale = flat({static_cast<double>(3.1f)});
      const auto momentum = [&](const Operand& second, const Values& had, bool of_scaled) {
        return run_op(OpKind::local_momentum,
                      LocalMomentumAttrs{.share = 1.0f / 3, .of_scaled = of_scaled}, step.state,
                      {step.in(), second, flat(had), scale}, {nothing_yet(n)})[0]
            .raw();
      };
      const std::string expected = momentum(flat(v), m, false);
      CHECK(momentum(packed_of({n / 8}, bits), m, false) == expected);
      CHECK(momentum(flat(v), came, true) == expected);
      CHECK(momentum(packed_of({n / 8}, bits), came, true) == expected);
    }
}

TEST_CASE("frozen_adam moves by the momentum over the frozen moment, but not where that is 0") {
  for (const DType copy : kRunTypes)
    for (const int64_t n : {1, 97, 40000}) {
      const FlatStep step(2, n, DType::f32, 0.9, 0.95);
      const Values m = f32_values(n, 3, 0.1), v = second_moments(n), p = f32_values(n, 5);
      const auto out = run_op(OpKind::frozen_adam, kConstants, step.state, {flat(m), flat(v)},
                              {flat(p), copy_of(copy, n)});
      Values expected = p;
      for (size_t i = 0; i < p.size(); ++i) {
        const double moved = v[i] > 0 ? m[i] / (std::sqrt(v[i]) + 1e-5) : 0;
        expected[i] -= 0.01f * (moved + 0.1f * p[i]);
      }
      require_close("p", out[0].values(), expected, {2e-7, 2e-7});
      if (copy != DType::f32) CHECK(out[1].values() == rounded(out[0].values(), copy));
    }
}

TEST_CASE("local steps: a rate of 0 leaves weights and momentum") {
  const int64_t n = 97;
  const Values m = f32_values(n, 3), p = f32_values(n, 4), v(97, 0.5), zeros(97, 0);
  StepState state = model_state();
  state.lr = 0;
  const auto still = run_op(OpKind::end_local_steps, kConstants, state, {flat(v)},
                            {flat(p), flat(m), flat(zeros), {Shape{n}, DType::bf16}});
  CHECK(still[0].values() == p);
  CHECK(still[1].values() == m);
  CHECK(still[2].values() == zeros);
  CHECK(still[3].values() == rounded(p, DType::bf16));
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
  // Slices of a unit have the largest of their ratios, and the sum of their sums.
  const LambFactorAttrs attrs{.smallest = 0.5f, .largest = 4, .threshold = 1};
  const Operand ratios{Shape{3, 2}, DType::f32, {1, 1.5, 1.75, 0, 1.25, 0.5}};
  CHECK(result_of(OpKind::lamb_factor, attrs, model_state(),
                  {ratios, pairs({0, 0, 1, 3, 0, 0, 1, 5})}, {flat({1, 1})}) == Values{1.75, 1.25});
}

TEST_CASE("1-bit Lamb: a momentum's scale is set in the first step alone, and is a number") {
  const auto scale_of = [](const Values& m, double factor, double before) {
    return result_of(OpKind::momentum_scale, {}, model_state(), {flat(m), flat({factor})},
                     {flat({before})})[0];
  };
  CHECK(scale_of({2, -2, 2}, 0, 0) == 0.5);
  CHECK(scale_of({2, -2, 2}, 1, 7) == 7);
  CHECK(scale_of({0, 0}, 0, 0) == 1);
  CHECK(scale_of({1e-44}, 0, 0) == 0x1p100);
}

TEST_CASE("1-bit Lamb: a parameter without an average goes on with a trust ratio of 1") {
  for (const DType copy : kRunTypes)
    for (const double average : {0.0, 0.5}) {
      const auto out = run_op(OpKind::lamb, LambAttrs{}, model_state(),
                              {flat(Values(97, 1)), flat({average}), flat({2})},
                              {flat(Values(97, 0)), copy_of(copy, 97)});
      if (copy != DType::f32) CHECK(out[1].values() == rounded(out[0].values(), copy));
      CHECK(out[0].values()[96] == -static_cast<double>(average > 0 ? 0.01f : 0.02f));
    }
}

}  // namespace dstrain::parity
