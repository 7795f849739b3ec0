// What the products are measured against: the libraries called in the plainest way, and the rate at
// which this CPU multiplies when all operands are in registers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/core/dtype.h"
#include "runtime/ir/op.h"

namespace dstrain::bench {

struct Operands {
  const void* a = nullptr;  // x, d_y or d_y, in the order of op.h
  const void* b = nullptr;  // weight, weight or x
  void* out = nullptr;
};

// oneDNN's matmul on plain row-major bf16 operands; call the result to run it once.
std::function<void()> dnnl_matmul(OpKind op, int64_t rows, int64_t in, int64_t out,
                                  const Operands& operands);

// One dnnl_sgemm of it on plain row-major f32 operands.
std::function<void()> library_sgemm(OpKind op, int64_t rows, int64_t in, int64_t out,
                                    const Operands& operands);

// What is called for operands of `dtype`, in words.
std::string library_name(DType dtype);

// Seconds for `flops` of bf16 work on registers alone (AMX tiles, or AVX512_BF16 without them) on each
// of `threads` threads; 0 where the CPU has neither.
double register_seconds(int threads, double flops, const std::function<double()>& now);

}  // namespace dstrain::bench
