// Updates with state in 8-bit blocks, beside their definition.
#include <limits>

#include "runtime/core/blocks/dynamic_code.h"
#include "tests/kernels/parity/ops/flat_update.h"

namespace dstrain::parity {
namespace {

constexpr int k8bitSteps = 12;

// Returns the values of all codes in ascending order, as bitsandbytes makes them: the middles of equally spaced boundaries
// from 0.1 to 1, for each decade.
Values code_values(bool is_signed) {
  Values all{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int count = (is_signed ? 1 : 2) << decade;
    for (int k = 0; k < count; ++k) {
      const double low = 0.1 + 0.9 * k / count, high = 0.1 + 0.9 * (k + 1) / count;
      const double value = std::pow(10.0, decade - 6) * (low + high) / 2;
      all.push_back(value);
      if (is_signed) all.push_back(-value);
    }
  }
  std::ranges::sort(all);
  return all;
}

// A slot: codes, and the largest magnitude of each block.
struct PackedSlot {
  Values codes, absmax;

  PackedSlot(int64_t n, bool is_signed)
      : codes(static_cast<size_t>(n)),
        absmax(static_cast<size_t>((n + kStateBlock - 1) / kStateBlock)),
        values_(code_values(is_signed)),
        signed_(is_signed) {}

  double value(size_t i) const {
    return values_[static_cast<size_t>(codes[i])] * absmax[i / kStateBlock];
  }
  std::vector<Operand> operands() const {
    return {{Shape{static_cast<int64_t>(codes.size())}, DType::u8, codes}, flat(absmax)};
  }

  // Takes what a kernel has written, after checking that it packs `exact`.
  void take(const Guarded& new_codes, const Guarded& new_absmax, const Values& exact) {
    codes = new_codes.values();
    absmax = new_absmax.values();
    for (size_t b = 0; b < absmax.size(); ++b) {
      double most = 0;
      for (size_t i = b * kStateBlock; i < std::min(exact.size(), (b + 1) * kStateBlock); ++i)
        most = std::max(most, std::abs(exact[i]));
      REQUIRE(absmax[b] == Approx(most).epsilon(1e-6).margin(1e-30));
    }
    for (size_t i = 0; i < exact.size(); ++i) {
      const double most = absmax[i / kStateBlock], x = most > 0 ? exact[i] / most : 0;
      double nearest = std::numeric_limits<double>::infinity();
      for (const double v : values_)
        if (!(signed_ && x < 0 && v == 0)) nearest = std::min(nearest, std::abs(x - v));
      INFO("element " << i << " is " << x << " of the largest magnitude, code " << codes[i]);
      REQUIRE(std::abs(x - values_[static_cast<size_t>(codes[i])]) <= nearest + 1e-6 * std::abs(x));
    }
  }

 private:
  Values values_;
  bool signed_;
};

struct Types {
  DType grad, copy;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32},
                            {DType::f32, DType::bf16},
                            {DType::bf16, DType::bf16},
                            {DType::f16, DType::f16}};

std::vector<Operand> with_copy(std::vector<Operand> out, int64_t n, DType copy) {
  out.push_back(copy == DType::f32 ? absent() : Operand{Shape{n}, copy});
  return out;
}

TEST_CASE("the codes of state are bitsandbytes'") {
  for (const bool is_signed : {true, false}) {
    const Values expected = code_values(is_signed);
    const auto values = dynamic_values(is_signed);
    REQUIRE(expected.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(static_cast<double>(values[i]) == Approx(expected[i]).epsilon(3e-7));
  }
}

TEST_CASE("adam_8bit follows its definition, and writes the rounded copy") {
  for (const int64_t n : {1, 97, 256, 1000})
    for (const auto& [grad, copy] : kTypes)
      for (const float decay : {0.0f, 0.1f}) {
        Values p = rounded(normal_values(n, 2), DType::f32);
        PackedSlot m(n, true), v(n, false);
        for (int step = 0; step < k8bitSteps; ++step) {
          const FlatStep s(step, n, grad, 0.9, 0.99);
          Call call{OpKind::adam_8bit, AdamAttrs{.eps = 1e-8f, .weight_decay = decay}};
          call.state = &s.state;
          std::vector<Operand> out{flat(p)};
          for (const PackedSlot* slot : {&m, &v})
            for (const Operand& o : slot->operands()) out.push_back(o);
          const auto written = run_everywhere(call, {s.in()}, with_copy(out, n, copy));
          Values exact = p, exact_m(p.size()), exact_v(p.size());
          for (size_t i = 0; i < p.size(); ++i) {
            exact_m[i] = 0.9 * m.value(i) + (1 - 0.9) * s.g(i);
            exact_v[i] = 0.99 * v.value(i) + (1 - 0.99) * s.g(i) * s.g(i);
            const double root =
                std::sqrt(exact_v[i] / static_cast<double>(s.state.bias_correction2)) + 1e-8;
            exact[i] -= static_cast<double>(0.01f) *
                        (exact_m[i] / static_cast<double>(s.state.bias_correction1) / root +
                         static_cast<double>(decay) * p[i]);
          }
          p = written[0].values();
          require_close("p", p, exact, {2e-6, 1e-6});
          m.take(written[1], written[2], exact_m);
          v.take(written[3], written[4], exact_v);
          if (copy != DType::f32) CHECK(written[5].values() == rounded(p, copy));
        }
      }
}

TEST_CASE("lion_8bit follows its definition, and writes the rounded copy") {
  for (const int64_t n : {1, 97, 256, 1000})
    for (const auto& [grad, copy] : kTypes) {
      Values p = rounded(normal_values(n, 2), DType::f32);
      PackedSlot m(n, true);
      for (int step = 0; step < k8bitSteps; ++step) {
        const FlatStep s(step, n, grad, 0.9, 0.99);
        Call call{OpKind::lion_8bit, LionAttrs{.weight_decay = 0.1f}};
        call.state = &s.state;
        std::vector<Operand> out{flat(p)};
        for (const Operand& o : m.operands()) out.push_back(o);
        const auto written = run_everywhere(call, {s.in()}, with_copy(out, n, copy));
        Values exact = p, exact_m(p.size());
        for (size_t i = 0; i < p.size(); ++i) {
          const double c = 0.9 * m.value(i) + (1 - 0.9) * s.g(i);
          exact[i] -= static_cast<double>(0.01f) * ((c > 0   ? 1
                                                     : c < 0 ? -1
                                                             : 0) +
                                                    static_cast<double>(0.1f) * p[i]);
          exact_m[i] = 0.99 * m.value(i) + (1 - 0.99) * s.g(i);
        }
        p = written[0].values();
        require_close("p", p, exact, {1e-6, 1e-6});
        m.take(written[1], written[2], exact_m);
        if (copy != DType::f32) CHECK(written[3].values() == rounded(p, copy));
      }
    }
}

TEST_CASE("state in 8 bits: zeros stay zeros, negative values do not become 0, skipped steps") {
  constexpr int64_t n = 300;
  FlatStep s(0, n, DType::f32, 0.9, 0.99);
  Call call{OpKind::lion_8bit, LionAttrs{}};
  call.state = &s.state;
  const Values p = rounded(normal_values(n, 2), DType::f32);
  const PackedSlot m(n, true);
  const auto run = [&](const Values& gradient) {
    return run_everywhere(call, {flat(gradient)},
                          {flat(p), m.operands()[0], m.operands()[1], absent()});
  };
  const auto still = run(Values(n));
  CHECK(still[0].values() == p);
  CHECK(still[1].values() == Values(n, kSignedZero));
  CHECK(still[2].values() == Values(2));
  Values small(n, -1e-12);
  small[0] = small[256] = 1;
  small[1] = 1e-12;
  const Values codes = run(small)[1].values();
  CHECK(codes[0] == 255);
  CHECK(codes[1] == kSignedZero);
  CHECK(codes[2] == kSignedZero - 1);
  s.state.skip = 1;
  const auto skipped = run(small);
  CHECK(skipped[0].values() == p);
  CHECK(skipped[1].values() == m.codes);
  CHECK(skipped[2].values() == m.absmax);
}

}  // namespace
}  // namespace dstrain::parity
