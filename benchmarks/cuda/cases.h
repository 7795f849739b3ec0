// What bench_cuda measures: kernels at the shapes of a GPT-2, each with its floor: the bytes that it must
// move and the FLOPs that it must do, whoever writes it. Pure: no device is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ir/kernel.h"

namespace dstrain::bench {

struct Width {
  int64_t channels, heads;
  int64_t batch;  // samples of a micro-batch
};

struct Shapes {
  int64_t seq = 1024;
  std::vector<int64_t> vocabularies;
  std::vector<Width> widths;
  std::vector<Width> heads;                // of attention alone
  int64_t parameters = 124439808;          // that an optimizer updates at once
  int64_t probe_size = 8192;               // rows, columns and depth of the GEMM probe
  int64_t probe_bytes = int64_t{1} << 30;  // of the copy probe
};

// GPT-2 124M and 1.5B, heads of 64 and 128 numbers; the same list at sizes that the emulated device can run.
Shapes gpt2_shapes();
Shapes tiny_shapes();

struct Operand {
  TensorSpec spec;
  int64_t below = 0;     // i32: values lie in [0, below)
  bool updated = false;  // an output that is read as well
  int same_as = -1;      // an output that is input `same_as`
};

struct Floor {
  double bytes = 0;
  double flops = 0;  // on tensor cores; 0 where memory is the limit whatever is computed
};

struct Case {
  std::string name;  // "layer_norm C=768"; unique
  OpKind op{};
  OpAttrs attrs;
  std::vector<Operand> in, out;
  Floor floor;
};

// Every op that has a kernel of its own or cuBLASLt's on a GPU, in bf16.
std::vector<Case> cases_of(const Shapes& shapes);

// The specs of a case's operands, for a KernelSpec.
std::vector<TensorSpec> specs_of(const std::vector<Operand>& operands);

}  // namespace dstrain::bench
