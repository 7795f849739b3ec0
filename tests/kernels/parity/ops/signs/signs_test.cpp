// Values that travel as signs (runtime/ir/quantized.h), against the numpy model of tests/golden/signs/make_signs.py,
// and the optimizer of a momentum that does.
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/flat_update.h"
#include "tests/kernels/parity/ops/packed_bytes.h"
#include "tests/kernels/parity/ops/signs/sign_values.h"
#include "tests/support/source_file.h"

namespace dstrain::parity {
namespace {

// What two ops share: they write packed values and their error.
struct Packed {
  std::string bytes;
  Guarded error;
};
Packed pack(OpKind op, const Operand& in, const Shape& packed, const Values& error,
            const StepState& state = {}) {
  Call call;
  call.op = op;
  call.state = &state;
  std::vector<Guarded> out = run_everywhere(call, {in}, {packed_of(packed), flat(error)});
  return {out[0].raw(), std::move(out[1])};
}

// The state of an exchange over several steps.
struct Exchange {
  int64_t ranks, part;
  std::vector<Values> worker, server;

  Exchange(int64_t of_ranks, int64_t of_part) : ranks(of_ranks), part(of_part) {
    worker.assign(static_cast<size_t>(ranks), Values(static_cast<size_t>(ranks * part), 0));
    server.assign(static_cast<size_t>(ranks), Values(static_cast<size_t>(part), 0));
  }

  void check_step(int64_t step, bool zeros, const nlohmann::json& expected) {
    const int64_t bytes = sign_bytes(part);
    std::vector<std::string> sent;
    for (int64_t r = 0; r < ranks; ++r) {
      Values& error = worker[static_cast<size_t>(r)];
      const Packed first =
          pack(OpKind::quantize_signs, flat(sign_values(r, step, ranks * part, zeros)),
               {ranks, bytes}, error);
      CHECK(crc32(first.bytes) == expected["sent"][static_cast<size_t>(r)]);
      CHECK(crc32(first.error.raw()) == expected["worker"][static_cast<size_t>(r)]);
      sent.push_back(first.bytes);
      error = first.error.values();
    }
    std::string all;
    for (int64_t owner = 0; owner < ranks; ++owner) {
      std::string received;
      for (const std::string& from : sent)
        received += from.substr(static_cast<size_t>(owner * bytes), static_cast<size_t>(bytes));
      Values& error = server[static_cast<size_t>(owner)];
      const Packed second =
          pack(OpKind::requantize_signs, packed_of({ranks, bytes}, received), {bytes}, error);
      CHECK(crc32(second.bytes) == expected["forward"][static_cast<size_t>(owner)]);
      CHECK(crc32(second.error.raw()) == expected["server"][static_cast<size_t>(owner)]);
      all += second.bytes;
      error = second.error.values();
    }
    const StepState state;
    Call call{OpKind::dequantize_signs};
    call.state = &state;
    const Guarded sum = std::move(run_everywhere(call, {packed_of({ranks, bytes}, all)},
                                                 {{Shape{ranks * part}, DType::f32}})[0]);
    CHECK(crc32(sum.raw()) == expected["sum"]);
  }
};

}  // namespace

TEST_CASE("values added as signs, and their errors, have the bits of the numpy model") {
  const auto cases =
      nlohmann::json::parse(std::ifstream(source_file("tests/golden/signs/signs.json")));
  REQUIRE(cases.size() == 32);
  Sample sample = sample_if_emulated(3);
  for (const auto& c : cases) {
    if (!sample.takes()) continue;
    Exchange exchange(c["ranks"], c["part"]);
    REQUIRE(c["steps"].size() == 5);
    for (int64_t step = 0; step < 5; ++step) {
      INFO(exchange.ranks << " ranks, parts of " << exchange.part << ", step " << step);
      exchange.check_step(step, c["zeros"], c["steps"][static_cast<size_t>(step)]);
    }
  }
}

TEST_CASE("signs: a skipped step leaves errors and values, and packs zeros, whatever it is given") {
  StepState skipped;
  skipped.skip = 1;
  const int64_t n = 600;
  const Values error = rounded(normal_values(n, 2), DType::f32);
  Values x = normal_values(n, 1);
  x[3] = std::nan("");
  x[77] = HUGE_VAL;
  const auto nothing = std::string(static_cast<size_t>(sign_bytes(n)), '\0');
  const Packed first = pack(OpKind::quantize_signs, flat(x), {sign_bytes(n)}, error, skipped);
  CHECK(first.bytes == nothing);
  CHECK(first.error.values() == error);
  const std::string noise(nothing.size(), '\xff');
  const Packed second = pack(OpKind::requantize_signs, packed_of({1, sign_bytes(n)}, noise),
                             {sign_bytes(n)}, error, skipped);
  CHECK(second.bytes == nothing);
  CHECK(second.error.values() == error);
  Call call{OpKind::dequantize_signs};
  call.state = &skipped;
  CHECK(run_everywhere(call, {packed_of({sign_bytes(n)}, noise)}, {flat(error)})[0].values() ==
        error);
}

TEST_CASE("signs: denormal values come back as their mean magnitude") {
  const Values x = rounded({1e-40, -3e-40, 0, -0.0}, DType::f32);
  const Packed first = pack(OpKind::quantize_signs, flat(x), {sign_bytes(4)}, Values(4, 0));
  float scale;
  std::memcpy(&scale, first.bytes.data(), sizeof scale);
  CHECK(scale == Approx(1e-40).epsilon(1e-4));
  CHECK(first.bytes[4] == 2);
}

TEST_CASE("local_momentum is the share of a rank, and 0 where there has been no gradient") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {1, 97, 40000}) {
      const FlatStep step(2, n, dtype, 0.9, 0.95);
      Values m = rounded(normal_values(n, 3, 0.1), DType::f32);
      Values v = rounded(uniform_values(n, 4, 0, 0.1), DType::f32);
      for (size_t i = 0; i < v.size(); i += 5) v[i] = 0;
      Call call{OpKind::local_momentum};
      call.state = &step.state;
      call.attrs = LocalMomentumAttrs{.ranks = 3};
      const Values out = run_everywhere(call, {step.in(), flat(v)}, {flat(m)})[0].values();
      for (size_t i = 0; i < m.size(); ++i)
        m[i] = v[i] > 0 ? 0.9 * m[i] / 3 + (1 - 0.9) * step.g(i) : 0;
      require_close("m", out, m, {1e-6, 1e-7});
      StepState skipped = step.state;
      skipped.skip = 1;
      call.state = &skipped;
      CHECK(run_everywhere(call, {step.in(), flat(v)}, {flat(out)})[0].values() == out);
    }
}

TEST_CASE("positive_bits say where values are above 0, and local_momentum goes by them") {
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {8, 104, 40000}) {
      const FlatStep step(2, n, dtype, 0.9, 0.95);
      const Values m = rounded(normal_values(n, 3, 0.1), DType::f32);
      Values v = rounded(uniform_values(n, 4, 0, 0.1), DType::f32);
      for (size_t i = 0; i < v.size(); i += 5) v[i] = 0;
      v[1] = 1e-45;  // the smallest one
      v[2] = -1;
      v[3] = -0.0;
      v[4] = std::nan("");
      const StepState& state = step.state;
      const std::string bits =
          run_op(OpKind::positive_bits, {}, state, {flat(v)}, {packed_of({n / 8})})[0].raw();
      for (size_t i = 0; i < v.size(); ++i)
        if ((static_cast<uint8_t>(bits[i / 8]) >> i % 8 & 1) != (v[i] > 0 ? 1 : 0)) FAIL(i);
      const LocalMomentumAttrs attrs{.ranks = 3};
      const auto by_values =
          run_op(OpKind::local_momentum, attrs, state, {step.in(), flat(v)}, {flat(m)});
      const auto by_bits = run_op(OpKind::local_momentum, attrs, state,
                                  {step.in(), packed_of({n / 8}, bits)}, {flat(m)});
      CHECK(by_bits[0].raw() == by_values[0].raw());
    }
}

TEST_CASE("frozen_adam moves by the momentum over the frozen moment, but not where that is 0") {
  for (const DType copy : kRunTypes)
    for (const int64_t n : {1, 97, 40000}) {
      const FlatStep step(2, n, DType::f32, 0.9, 0.95);
      const Values m = rounded(normal_values(n, 3, 0.1), DType::f32);
      Values v = rounded(uniform_values(n, 4, 0, 0.1), DType::f32), p = normal_values(n, 5);
      for (size_t i = 0; i < v.size(); i += 5) v[i] = 0;
      p = rounded(p, DType::f32);
      Call call{OpKind::frozen_adam};
      call.state = &step.state;
      call.attrs = FrozenAdamAttrs{.eps = 1e-5f, .weight_decay = 0.1f};
      const std::vector<Operand> outs{flat(p),
                                      copy == DType::f32 ? absent() : Operand{Shape{n}, copy, p}};
      const auto out = run_everywhere(call, {flat(m), flat(v)}, outs);
      Values expected = p;
      for (size_t i = 0; i < p.size(); ++i) {
        const double moved = v[i] > 0 ? m[i] / (std::sqrt(v[i]) + 1e-5) : 0;
        expected[i] -= 0.01f * (moved + 0.1f * p[i]);
      }
      require_close("p", out[0].values(), expected, {2e-7, 2e-7});
      if (copy != DType::f32) CHECK(out[1].values() == rounded(out[0].values(), copy));
      StepState skipped = step.state;
      skipped.skip = 1;
      call.state = &skipped;
      CHECK(run_everywhere(call, {flat(m), flat(v)}, outs)[0].values() == p);
    }
}

}  // namespace dstrain::parity
