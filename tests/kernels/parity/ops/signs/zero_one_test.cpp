// The kernels of 0/1 Adam, in the order in which its steps use them, against the numpy model of
// tests/golden/signs/make_zero_one.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/core/isa/isa.h"
#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/signs/sign_values.h"
#include "tests/support/source_file.h"

namespace dstrain::parity {
namespace {

constexpr FrozenAdamAttrs kConstants{.eps = 1e-5f, .weight_decay = 0.1f};

// The state of all ranks.
struct ZeroOne : SignRanks {
  Values p, v;
  std::vector<Values> m, sum;

  ZeroOne(int64_t of_ranks, int64_t of_part)
      : SignRanks(of_ranks, of_part), p(sign_values(7, 0, n, false)) {
    v.assign(static_cast<size_t>(n), 0);
    m = sum = std::vector<Values>(static_cast<size_t>(ranks), v);
  }

  void add_gradients(const std::vector<Values>& gradients, const StepState& state) {
    Values g(static_cast<size_t>(n), 0);
    for (const Values& own : gradients)
      for (size_t i = 0; i < g.size(); ++i)
        g[i] = static_cast<float>(g[i]) + static_cast<float>(own[i]);
    const AdamAttrs attrs{.eps = kConstants.eps, .weight_decay = kConstants.weight_decay};
    const auto out =
        run_op(OpKind::adam, attrs, state, {flat(g)}, {flat(p), flat(m[0]), flat(v), absent()});
    p = out[0].values();
    m.assign(m.size(), out[1].values());
    v = out[2].values();
  }

  void send_gradients(const std::vector<Values>& gradients, const StepState& state) {
    const bool alone = ranks == 1;
    const Values g = alone ? gradients[0] : exchange(gradients, {.gradient = true}, state);
    m.assign(m.size(), run_op(OpKind::local_momentum, LocalMomentumAttrs{.scaled = alone}, state,
                              {flat(g), flat(v)}, {flat(m[0])})[0]
                           .values());
    p = run_op(OpKind::frozen_adam, kConstants, state, {flat(m[0]), flat(v)},
               {flat(p), absent()})[0]
            .values();
  }

  void move_locally(const std::vector<Values>& gradients, const StepState& state) {
    for (size_t r = 0; r < gradients.size(); ++r) {
      const auto out = run_op(OpKind::local_step, LocalMomentumAttrs{.ranks = ranks}, state,
                              {flat(gradients[r]), flat(v)}, {flat(m[r]), flat(sum[r])});
      m[r] = out[0].values();
      sum[r] = out[1].values();
    }
  }

  void synchronise(const StepState& state) {
    const Values mean = ranks == 1 ? sum[0] : exchange(sum, {.ranks = ranks}, state);
    const auto out = run_op(OpKind::end_local_steps, kConstants, state, {flat(v)},
                            {flat(p), flat(m[0]), flat(mean), {Shape{n}, DType::f32}});
    CHECK(out[3].raw() == out[0].raw());
    p = out[0].values();
    m.assign(m.size(), out[1].values());
    sum.assign(sum.size(), out[2].values());
  }

  // Returns the CRC-32 of the weights that ranks compute with.
  uint32_t weights(const StepState& state) const {
    std::string all;
    for (const Values& moved : sum)
      all += run_op(OpKind::local_weights, kConstants, state, {flat(p), flat(v), flat(moved)},
                    {nothing_yet(n)})[0]
                 .raw();
    return crc32(all);
  }
};

}  // namespace

TEST_CASE("0/1 Adam: what travels, and all state of every phase, has the bits of the numpy model") {
  if (max_isa() < Isa::avx2) return;  // the model fuses multiply-add, and the baseline does not
  const auto cases =
      nlohmann::json::parse(std::ifstream(source_file("tests/golden/signs/zero_one.json")));
  REQUIRE(cases.size() == 24);
  Sample sample = sample_if_emulated(3);
  for (const auto& c : cases) {
    if (!sample.takes()) continue;
    ZeroOne all(c["ranks"], c["part"]);
    REQUIRE(c["steps"].size() == 12);
    bool frozen = false;
    StepState state;
    state.lr = 0.01f;
    state.beta1 = 0.9;
    state.beta2 = 0.95;
    state.grad_scale = 0.5f;
    for (int64_t step = 0; step < 12; ++step) {
      const auto& expected = c["steps"][static_cast<size_t>(step)];
      const std::string kind = expected["kind"];
      INFO(all.ranks << " ranks, parts of " << all.part << ", step " << step << ": " << kind);
      const bool local = kind == "local" || kind == "synchronise";
      state.drop_errors = local && !std::exchange(frozen, local) ? 1 : 0;
      CHECK(all.weights(state) == expected["weights"]);
      all.sent = all.forward = "";
      const std::vector<Values> gradients = gradients_of(all.ranks, step, all.n, c["zeros"]);
      if (kind == "whole gradients") all.add_gradients(gradients, state);
      if (kind == "gradient signs") all.send_gradients(gradients, state);
      if (local) all.move_locally(gradients, state);
      if (kind == "synchronise") all.synchronise(state);
      state.local_lr = kind == "local" ? state.local_lr + static_cast<double>(state.lr) : 0;
      CHECK(crc32(all.sent) == expected["sent"]);
      CHECK(crc32(all.forward) == expected["forward"]);
      CHECK(crc_of({all.p}) == expected["master"]);
      CHECK(crc_of({all.v}) == expected["v"]);
      CHECK(crc_of(all.m) == expected["m"]);
      CHECK(crc_of(all.sum) == expected["sum"]);
      CHECK(crc_of(all.worker) == expected["worker"]);
      CHECK(crc_of(all.server) == expected["server"]);
    }
  }
}

TEST_CASE("quantize_signs reads gradients of every type, times the step's scale") {
  StepState state;
  state.grad_scale = 0.25f;
  const int64_t n = 700;
  const Values error = rounded(normal_values(n, 2), DType::f32);
  for (const DType dtype : kRunTypes) {
    const Values x = rounded(normal_values(n, 1), dtype);
    Values scaled = x;
    for (double& value : scaled) value *= 0.25;
    const auto out = run_op(OpKind::quantize_signs, SignAttrs{.gradient = true}, state,
                            {{Shape{n}, dtype, x}}, {packed_of({sign_bytes(n)}), flat(error)});
    const auto expected = run_op(OpKind::quantize_signs, {}, state, {flat(scaled)},
                                 {packed_of({sign_bytes(n)}), flat(error)});
    CHECK(out[0].raw() == expected[0].raw());
    CHECK(out[1].raw() == expected[1].raw());
  }
}

TEST_CASE("local steps: a skipped step moves nothing, and a rate of 0 leaves the momentum") {
  const int64_t n = 97;
  const Values m = rounded(normal_values(n, 3), DType::f32), v(97, 0.5), zeros(97, 0);
  const Values p = rounded(normal_values(n, 4), DType::f32);
  StepState state;
  state.lr = 0;
  const auto still = run_op(OpKind::end_local_steps, kConstants, state, {flat(v)},
                            {flat(p), flat(m), flat(zeros), {Shape{n}, DType::bf16}});
  CHECK(still[0].values() == p);
  CHECK(still[1].values() == m);
  CHECK(still[2].values() == zeros);
  CHECK(still[3].values() == rounded(p, DType::bf16));
  state.lr = 0.1f;
  state.skip = 1;
  const auto step = run_op(OpKind::local_step, {}, state, {flat(Values(97, std::nan(""))), flat(v)},
                           {flat(m), flat(p)});
  CHECK(step[0].values() == m);
  CHECK(step[1].values() == p);
  const auto end = run_op(OpKind::end_local_steps, kConstants, state, {flat(v)},
                          {flat(p), flat(m), flat(m), absent()});
  CHECK(end[0].values() == p);
  CHECK(end[2].values() == m);
}

}  // namespace dstrain::parity
