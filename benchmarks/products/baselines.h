// What products are compared with: plain calls of oneDNN, and the rate at which this CPU multiplies operands in
// registers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/core/dtype.h"
#include "runtime/ir/op.h"

namespace dstrain::bench {

// The addresses of the operands and the result of one product. The memory belongs to the caller.
struct Operands {
  const void* a = nullptr;  // x, d_y or d_y, in the order of op.h
  const void* b = nullptr;  // weight, weight or x
  void* out = nullptr;
};

// Returns a function that runs oneDNN's matmul once on plain row-major bf16 operands.
std::function<void()> dnnl_matmul(OpKind op, int64_t rows, int64_t in, int64_t out,
                                  const Operands& operands);

// Returns a function that calls dnnl_sgemm once on plain row-major f32 operands.
std::function<void()> library_sgemm(OpKind op, int64_t rows, int64_t in, int64_t out,
                                    const Operands& operands);

// Returns the name of the call that operands of `dtype` are compared with.
std::string library_name(DType dtype);

// Returns the seconds for `flops` bf16 FLOPs on registers alone (AMX tiles, or AVX512_BF16 without them) on each of
// `threads` threads; 0 if the CPU has neither.
double register_seconds(int threads, double flops, const std::function<double()>& now);

}  // namespace dstrain::bench
