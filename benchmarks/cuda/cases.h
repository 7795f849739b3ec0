// The cases of bench_cuda: kernels at the shapes of a GPT-2, each with the minimum of bytes and FLOPs that any
// implementation needs (its floor). Needs no device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ir/kernel.h"

namespace dstrain::bench {

// The width of a model, with the heads and the micro-batch that its cases use.
struct Width {
  int64_t channels, heads;
  int64_t batch;  // samples in a micro-batch
};

// The sizes at which kernels are measured.
struct Shapes {
  int64_t seq = 1024;
  std::vector<int64_t> vocabularies;
  std::vector<Width> widths;
  std::vector<Width> heads;                // for attention only
  int64_t parameters = 124439808;          // parameters that an optimizer kernel updates
  int64_t probe_size = 8192;               // rows, columns and depth of the GEMM probe
  int64_t probe_bytes = int64_t{1} << 30;  // size of the copy probe
};

// GPT-2 124M and 1.5B with heads of 64 and 128 elements; the second list has sizes for the emulated device.
Shapes gpt2_shapes();
Shapes tiny_shapes();

// An operand of a case: its shape and dtype, its values, and whether it shares memory with an input.
struct Operand {
  TensorSpec spec;
  int64_t below = 0;  // i32: values lie in [0, below)
  int64_t step = 0;   // not 0: i32, element i is first + i * step
  int64_t first = 0;
  bool updated = false;  // an output that is read as well
  int same_as = -1;      // an output that is input `same_as`
};

// The least work of a case: bytes moved and floating-point operations that no implementation can avoid.
struct Floor {
  double bytes = 0;
  double flops = 0;  // on tensor cores; 0 for memory-bound kernels
};

// A kernel to be measured: an op with its attributes and operands, and the least work that it needs.
struct Case {
  std::string name;  // "layer_norm C=768"; unique
  OpKind op{};
  OpAttrs attrs;
  std::vector<Operand> in, out;
  Floor floor;
};

// Returns a case for every op that has a kernel on a GPU, in bf16.
std::vector<Case> cases_of(const Shapes& shapes);

// Returns the specs of a case's operands, for a KernelSpec.
std::vector<TensorSpec> specs_of(const std::vector<Operand>& operands);

}  // namespace dstrain::bench
