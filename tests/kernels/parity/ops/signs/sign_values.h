// Values of the numpy models of tests/golden/signs, and the ranks that exchange them.
#pragma once

#include <cmath>

#include "runtime/ir/quantized.h"
#include "tests/kernels/parity/ops/flat_update.h"
#include "tests/kernels/parity/ops/packed_bytes.h"

namespace dstrain::parity {

// Returns the values of tests/golden/signs/make_signs.py; with `zeros` every third one is 0.
inline Values sign_values(int64_t rank, int64_t step, int64_t n, bool zeros) {
  Values x;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005;
    const int power = static_cast<int>(8 + (i / 64 + rank) % 7);
    x.push_back(zeros && i % 3 == 0 ? 0 : std::ldexp(static_cast<double>(whole), -power));
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

// Returns an output that is written whole.
inline Operand nothing_yet(int64_t n) {
  return {Shape{n}, DType::f32};
}

// Ranks that add values as signs, and their errors.
struct SignRanks {
  int64_t ranks, part, n;
  std::vector<Values> worker, server;
  std::string sent, forward;  // in the newest step

  SignRanks(int64_t of_ranks, int64_t of_part)
      : ranks(of_ranks),
        part(of_part),
        n(ranks * part),
        worker(static_cast<size_t>(ranks), Values(static_cast<size_t>(n), 0)),
        server(static_cast<size_t>(ranks), Values(static_cast<size_t>(part), 0)) {}

  // Returns the sum over ranks of the values that signs stand for.
  Values exchange(const std::vector<Values>& values, SignAttrs attrs, const StepState& state) {
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
    return run_op(OpKind::dequantize_signs, {}, state, {packed_of({ranks, bytes}, forward)},
                  {nothing_yet(n)})[0]
        .values();
  }
};

// Returns the CRC-32 of all values in f32.
inline uint32_t crc_of(const std::vector<Values>& list) {
  std::string all;
  for (const Values& x : list)
    all += Guarded(Shape{static_cast<int64_t>(x.size())}, DType::f32, x, 0).raw();
  return crc32(all);
}

// Returns the gradient of each rank; with `zeros` the first 100 and every third element of it are 0.
inline std::vector<Values> gradients_of(int64_t ranks, int64_t step, int64_t n, bool zeros) {
  std::vector<Values> list;
  for (int64_t r = 0; r < ranks; ++r) {
    list.push_back(sign_values(r, step, n, zeros));
    if (zeros) std::fill_n(list.back().begin(), std::min<int64_t>(n, 100), 0);
  }
  return list;
}

}  // namespace dstrain::parity
