// Runs the kernel of an op on operands given by shape, dtype and values, at several alignments and thread counts,
// and requires equal bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::parity {

inline constexpr DType kRunTypes[] = {DType::f32, DType::bf16, DType::f16};

// The description of an operand, from which the memory of a test is made.
struct Operand {
  Shape shape;
  DType dtype = DType::f32;
  std::vector<double> values = {};  // empty: starts as NaN
  int same_as = -1;                 // for an output: the index of the input that it overwrites
};
inline Operand absent() {
  return {Shape{0}};
}

// Returns documents of samples of `seq_len` rows: of each row, the row of its sample at which its document begins. Each
// sample has documents of its own, of one row and of many.
inline std::vector<double> documents_of_samples(int64_t samples, int64_t seq_len) {
  std::vector<double> documents;
  uint32_t state = 3;
  for (int64_t sample = 0; sample < samples; ++sample) {
    int64_t begin = 0;
    for (int64_t row = 0; row < seq_len; ++row) {
      state = state * 1664525u + 1013904223u;
      if ((state >> 16) % 5 == 0) begin = row;
      documents.push_back(static_cast<double>(begin));
    }
  }
  return documents;
}

// Runs once. Operand k starts (start + k) mod 4 elements past a 64-byte boundary; all start on one if start is 0.
inline std::vector<Guarded> run_at_offset(const Call& call, const std::vector<Operand>& in,
                                          const std::vector<Operand>& out, int64_t start,
                                          const TestDevice& on = test_device()) {
  std::vector<Guarded> inputs, outputs;
  const auto make = [&](const Operand& o, size_t k) {
    const int64_t offset = start == 0 ? 0 : (start + static_cast<int64_t>(k)) % 4;
    return o.values.empty() ? Guarded(o.shape, o.dtype, offset)
                            : Guarded(o.shape, o.dtype, o.values, offset);
  };
  for (size_t i = 0; i < in.size(); ++i) inputs.push_back(make(in[i], i));
  for (size_t i = 0; i < out.size(); ++i) outputs.push_back(make(out[i], in.size() + i));
  std::vector<const Guarded*> reads;
  std::vector<Guarded*> writes;
  for (const Guarded& g : inputs) reads.push_back(g.elements() > 0 ? &g : nullptr);
  for (size_t i = 0; i < outputs.size(); ++i)
    writes.push_back(outputs[i].elements() == 0 ? nullptr
                     : out[i].same_as >= 0      ? &inputs[static_cast<size_t>(out[i].same_as)]
                                                : &outputs[i]);
  run_kernel(on, call, reads, writes);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (out[i].same_as >= 0) outputs[i] = std::move(inputs[static_cast<size_t>(out[i].same_as)]);
  return outputs;
}

// Runs with four values of `start` and with 1, 2 and 3 threads, requires that all outputs have the same bits each
// time, and returns the outputs.
inline std::vector<Guarded> run_everywhere(Call call, const std::vector<Operand>& in,
                                           const std::vector<Operand>& out) {
  call.threads = 1;
  std::vector<Guarded> base = run_at_offset(call, in, out, 0);
  for (int64_t start = 0; start < 4; ++start) {
    call.threads = 1 + static_cast<int>(start + 1) % 3;
    const std::vector<Guarded> other = run_at_offset(call, in, out, start);
    for (size_t i = 0; i < base.size(); ++i) {
      INFO("start " << start << ", threads " << call.threads);
      require_same_bits("output " + std::to_string(i), other[i], base[i]);
    }
  }
  return base;
}

// For an elementwise op: requires that elements [k, k + m) computed alone have the bits that they have in the whole
// range, for values of k and m that give full and partial packs.
inline void require_slices_agree(const Call& call, const std::vector<Operand>& in,
                                 const std::vector<Operand>& out) {
  const auto slice = [](std::vector<Operand> operands, int64_t k, int64_t m) {
    for (Operand& o : operands) {
      if (o.shape.elements() == 0) continue;
      o.shape = Shape{m};
      if (!o.values.empty()) o.values = {o.values.begin() + k, o.values.begin() + k + m};
    }
    return operands;
  };
  const int64_t n = in[0].shape.elements();
  const std::vector<Guarded> whole = run_at_offset(call, slice(in, 0, n), slice(out, 0, n), 0);
  for (int64_t k : {1, 2, 3, 5, 8, 15, 16, 17})
    for (int64_t m : {1, 2, 7, 15, 16, 17, 31}) {
      if (k + m > n) continue;
      const std::vector<Guarded> part = run_at_offset(call, slice(in, k, m), slice(out, k, m), k);
      for (size_t i = 0; i < part.size(); ++i) {
        const size_t size = static_cast<size_t>(size_of(part[i].dtype()));
        if (part[i].elements() == 0) continue;
        INFO("output " << i << ", elements " << k << " + " << m);
        REQUIRE(part[i].raw() == whole[i].raw().substr(static_cast<size_t>(k) * size,
                                                       static_cast<size_t>(m) * size));
      }
    }
}

// Returns the values rounded to `dtype`.
inline std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
  if (values.empty()) return values;
  return Guarded(Shape{static_cast<int64_t>(values.size())}, dtype, values).values();
}

}  // namespace dstrain::parity
