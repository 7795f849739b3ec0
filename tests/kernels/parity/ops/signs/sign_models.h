// The steps of optimizers whose ranks send signs, done by their kernels on all ranks of a run in turn, in the order in
// which plans use them.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/ops/flat_update.h"
#include "tests/kernels/parity/ops/packed_bytes.h"

namespace dstrain::parity {

// Returns the values of tests/golden/signs/make_signs.py; with `zeros` the first 100 and every third one are 0.
inline Values sign_values(int64_t rank, int64_t step, int64_t n, bool zeros) {
  Values x;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005;
    const int power = static_cast<int>(8 + (i / 64 + rank) % 7);
    const bool zero = zeros && (i % 3 == 0 || i < 100);
    x.push_back(zero ? 0 : std::ldexp(static_cast<double>(whole), -power));
  }
  return x;
}

// Runs an op everywhere and returns its outputs.
inline std::vector<Guarded> run_op(OpKind op, const OpAttrs& attrs, const StepState& state,
                                   const std::vector<Operand>& in,
                                   const std::vector<Operand>& out) {
  Call call{op};
  call.attrs = attrs;
  call.state = &state;
  return run_everywhere(call, in, out);
}
// Returns the first output's values.
inline Values result_of(OpKind op, const OpAttrs& attrs, const StepState& state,
                        const std::vector<Operand>& in, const std::vector<Operand>& out) {
  return run_op(op, attrs, state, in, out)[0].values();
}

// Returns an output that is written whole.
inline Operand nothing_yet(int64_t n) {
  return {Shape{n}, DType::f32};
}
inline Operand pairs(const Values& x) {
  return {Shape{static_cast<int64_t>(x.size())}, DType::f64, x};
}

// Returns the CRC-32 of all values in f32.
inline uint32_t crc_of(const std::vector<Values>& list) {
  std::string all;
  for (const Values& x : list)
    all += Guarded(Shape{static_cast<int64_t>(x.size())}, DType::f32, x, 0).raw();
  return crc32(all);
}

using Crcs = std::map<std::string, uint32_t>;
using Gradients = std::vector<Values>;  // of all ranks

// Returns the sum of all ranks' gradients, in f32.
inline Values sum_of(const Gradients& gradients) {
  Values sum(gradients[0].size(), 0);
  for (const Values& own : gradients)
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = static_cast<float>(sum[i]) + static_cast<float>(own[i]);
  return sum;
}

// The constants of the numpy models.
inline constexpr FrozenStepAttrs kConstants{.eps = 1e-5f, .weight_decay = 0.1f};
inline StepState model_state() {
  StepState state;
  state.lr = 0.01f;
  state.beta1 = 0.9;
  state.beta2 = 0.95;
  state.grad_scale = 0.5f;
  return state;
}

// Ranks that add values as signs, and their errors.
struct Signs {
  int64_t ranks, part, n;
  Gradients worker, server;
  Values sum;
  std::string sent, forward;  // in the newest step
  StepState state = model_state();

  Signs(int64_t of_ranks, int64_t of_part)
      : ranks(of_ranks),
        part(of_part),
        n(ranks * part),
        worker(static_cast<size_t>(ranks), Values(static_cast<size_t>(n), 0)),
        server(static_cast<size_t>(ranks), Values(static_cast<size_t>(part), 0)) {}

  // Returns the sum over ranks of the values that signs stand for.
  Values exchange(const Gradients& values, SignAttrs attrs) {
    const int64_t bytes = sign_bytes(part);
    std::vector<std::string> from;
    for (size_t r = 0; r < values.size(); ++r) {
      const auto out = run_op(OpKind::quantize_signs, attrs, state, {flat(values[r])},
                              {packed_of({ranks, bytes}), flat(worker[r])});
      from.push_back(out[0].raw());
      worker[r] = out[1].values();
      sent += from.back();
    }
    for (size_t owner = 0; owner < values.size(); ++owner) {
      std::string received;
      for (const std::string& packed : from)
        received += packed.substr(owner * static_cast<size_t>(bytes), static_cast<size_t>(bytes));
      const auto out =
          run_op(OpKind::requantize_signs, {}, state, {packed_of({ranks, bytes}, received)},
                 {packed_of({bytes}), flat(server[owner])});
      server[owner] = out[1].values();
      forward += out[0].raw();
    }
    return result_of(OpKind::dequantize_signs, {}, state, {packed_of({ranks, bytes}, forward)},
                     {nothing_yet(n)});
  }

  float share() const { return 1.0f / static_cast<float>(ranks); }

  void step(int64_t, const Gradients& gradients) { sum = exchange(gradients, {}); }
  Crcs crcs() const { return {{"sum", crc_of({sum})}}; }
};

struct ZeroOneAdam : Signs {
  Values p, v;
  Gradients m, sums;
  uint32_t weights = 0;  // that ranks compute with in the newest step

  ZeroOneAdam(int64_t of_ranks, int64_t of_part)
      : Signs(of_ranks, of_part), p(sign_values(7, 0, n, false)) {
    v.assign(static_cast<size_t>(n), 0);
    m = sums = Gradients(static_cast<size_t>(ranks), v);
  }

  void step(int64_t number, const Gradients& gradients) {
    // Whole gradients, their signs; local steps, some of which synchronise.
    const char kind = "GGSGS==-=-=-"[number];
    state.drop_errors = number == 5 ? 1 : 0;
    std::string all;
    for (const Values& moved : sums)
      all += run_op(OpKind::local_weights, kConstants, state, {flat(p), flat(v), flat(moved)},
                    {nothing_yet(n)})[0]
                 .raw();
    weights = crc32(all);
    if (kind == 'G') add_gradients(gradients);
    if (kind == 'S') send_gradients(gradients);
    if (kind == '-' || kind == '=') move_locally(gradients);
    if (kind == '=') synchronise();
    state.local_lr = kind == '-' ? state.local_lr + static_cast<double>(state.lr) : 0;
  }
  Crcs crcs() const {
    return {{"weights", weights},
            {"master", crc_of({p})},
            {"v", crc_of({v})},
            {"m", crc_of(m)},
            {"sum", crc_of(sums)}};
  }

  void add_gradients(const Gradients& gradients) {
    const auto out = run_op(
        OpKind::adam, AdamAttrs{.eps = kConstants.eps, .weight_decay = kConstants.weight_decay},
        state, {flat(sum_of(gradients))}, {flat(p), flat(m[0]), flat(v), absent()});
    p = out[0].values();
    m.assign(m.size(), out[1].values());
    v = out[2].values();
  }

  void send_gradients(const Gradients& gradients) {
    const bool alone = ranks == 1;
    const Values g = alone ? gradients[0] : exchange(gradients, {.gradient = true});
    m.assign(m.size(), result_of(OpKind::local_momentum, LocalMomentumAttrs{.scaled = alone}, state,
                                 {flat(g), flat(v)}, {flat(m[0])}));
    p = result_of(OpKind::frozen_adam, kConstants, state, {flat(m[0]), flat(v)},
                  {flat(p), absent()});
  }

  void move_locally(const Gradients& gradients) {
    const LocalMomentumAttrs attrs{.weight = static_cast<float>(ranks)};
    for (size_t r = 0; r < gradients.size(); ++r) {
      const auto out = run_op(OpKind::local_momentum, attrs, state, {flat(gradients[r]), flat(v)},
                              {flat(m[r]), flat(sums[r])});
      m[r] = out[0].values();
      sums[r] = out[1].values();
    }
  }

  void synchronise() {
    const Values mean = ranks == 1 ? sums[0] : exchange(sums, {.ranks = ranks});
    const auto out = run_op(OpKind::end_local_steps, kConstants, state, {flat(v)},
                            {flat(p), flat(m[0]), flat(mean), nothing_yet(n)});
    CHECK(out[3].raw() == out[0].raw());
    p = out[0].values();
    m.assign(m.size(), out[1].values());
    sums.assign(sums.size(), out[2].values());
  }
};

// 1-bit Lamb, of a unit with two parameters of equal size, of which the second does not decay.
struct OneBitLamb : Signs {
  static constexpr FrozenStepAttrs kSteps[] = {kConstants, {.eps = kConstants.eps}};
  int64_t half;
  Values p, m, v, fresh, average = Values(2), factor = Values(2), scale = Values(2);

  OneBitLamb(int64_t of_ranks, int64_t of_part)
      : Signs(of_ranks, of_part), half(n / 2), p(sign_values(7, 0, n, false)) {
    m = v = fresh = Values(static_cast<size_t>(n));
  }

  void step(int64_t number, const Gradients& gradients) {
    if (number < 3)
      warm_up(sum_of(gradients));
    else
      frozen(gradients);
  }
  Crcs crcs() const {
    return {{"master", crc_of({p})},
            {"m", crc_of({m})},
            {"v", crc_of({v})},
            {"fresh", crc_of({fresh})},
            {"average", crc_of({average})},
            {"factor", crc_of({factor})},
            {"scale", crc_of({scale})}};
  }

  Operand of(const Values& all, size_t k) const {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(k) * half;
    return flat({begin, begin + half});
  }
  void set(Values& all, size_t k, const Values& part_of_it) const {
    std::ranges::copy(part_of_it, all.begin() + static_cast<ptrdiff_t>(k) * half);
  }
  double squares(const Values& all, size_t k) const {
    return result_of(OpKind::sum_squares, {}, state, {of(all, k)}, {{Shape{1}, DType::f64}})[0];
  }

  void warm_up(const Values& g) {
    Values direction(g), sums;
    for (size_t k = 0; k < 2; ++k) {
      const auto out =
          run_op(OpKind::lamb_direction,
                 LambDirectionAttrs{.eps = kSteps[k].eps, .weight_decay = kSteps[k].weight_decay},
                 state, {of(g, k), of(p, k)}, {of(m, k), of(v, k), nothing_yet(half)});
      set(m, k, out[0].values());
      set(v, k, out[1].values());
      set(direction, k, out[2].values());
      sums.push_back(squares(p, k));
      sums.push_back(squares(direction, k));
    }
    average =
        result_of(OpKind::lamb_average, LambAverageAttrs{}, state, {pairs(sums)}, {flat(average)});
    for (size_t k = 0; k < 2; ++k)
      set(p, k,
          result_of(OpKind::lamb, LambAttrs{.parameter = static_cast<int64_t>(k), .parameters = 2},
                    state, {of(direction, k), pairs(sums)}, {of(p, k), absent()}));
  }

  void frozen(const Gradients& gradients) {
    Gradients momenta(static_cast<size_t>(ranks), Values(static_cast<size_t>(n)));
    for (size_t k = 0; k < 2; ++k) {
      scale[k] = result_of(OpKind::momentum_scale, {}, state, {of(m, k), flat({factor[k]})},
                           {flat({scale[k]})})[0];
      for (size_t r = 0; r < momenta.size(); ++r)
        set(momenta[r], k,
            result_of(OpKind::local_momentum, LocalMomentumAttrs{.share = share()}, state,
                      {of(gradients[r], k), of(v, k), of(m, k), flat({scale[k]})},
                      {nothing_yet(half)}));
    }
    const Values total = ranks == 1 ? momenta[0] : exchange(momenta, {});
    Values direction(total), plain(total), largest, sums(4, 0);
    for (size_t k = 0; k < 2; ++k) {
      const auto out = run_op(OpKind::frozen_lamb_direction, kSteps[k], state,
                              {of(v, k), of(p, k), flat({scale[k]}), flat({factor[k]})},
                              {of(total, k), of(m, k), of(fresh, k), nothing_yet(half), flat({0})});
      set(plain, k, out[0].values());
      set(m, k, out[1].values());
      set(fresh, k, out[2].values());
      set(direction, k, out[3].values());
      largest.push_back(out[4].values()[0]);
      if (kSteps[k].weight_decay == 0) continue;
      sums[2 * k] = squares(plain, k);
      sums[2 * k + 1] = squares(direction, k);
    }
    factor = result_of(OpKind::lamb_factor, LambFactorAttrs{}, state, {flat(largest), pairs(sums)},
                       {flat(factor)});
    for (size_t k = 0; k < 2; ++k)
      set(p, k,
          result_of(OpKind::lamb, LambAttrs{}, state,
                    {of(direction, k), flat({average[k]}), flat({factor[k]})},
                    {of(p, k), absent()}));
  }
};

}  // namespace dstrain::parity
