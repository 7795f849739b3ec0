// Runs one kernel on the device under test: makes it, gives it guarded scratch memory, runs it and checks the
// guards of all operands. Includes what tests of kernels need beside it: values, operands and comparisons.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <vector>

#include "tests/kernels/parity/compare.h"
#include "tests/kernels/parity/guarded_operand.h"
#include "tests/kernels/parity/values.h"

namespace dstrain::parity {

// The op of a kernel under test and the arguments of its run, without the operands.
struct Call {
  OpKind op{};
  OpAttrs attrs{};
  int threads = 1;
  const StepState* state = nullptr;
  int64_t sample_offset = 0;
  bool accumulate = false;
};

// Makes the kernel of `call` for these operands (null: absent), runs it once with scratch memory of exactly the
// size it needs, and requires that no guard byte changed. An operand may be both an input and an output.
inline void run_kernel(const TestDevice& on, const Call& call,
                       const std::vector<const Guarded*>& in, const std::vector<Guarded*>& out) {
  std::map<const Guarded*, Tensor> on_device;
  const auto tensor_of = [&](const Guarded* g) {
    if (!g) return Tensor{};
    const auto [at, is_new] = on_device.try_emplace(g);
    if (is_new) at->second = g->to_device(on);
    return at->second;
  };
  std::vector<TensorSpec> in_specs, out_specs;
  std::vector<Tensor> in_tensors, out_tensors;
  for (const Guarded* g : in) {
    in_specs.push_back(g ? g->spec() : TensorSpec{});
    in_tensors.push_back(tensor_of(g));
  }
  for (const Guarded* g : out) {
    out_specs.push_back(g ? g->spec() : TensorSpec{});
    out_tensors.push_back(tensor_of(g));
  }
  const KernelSpec spec{call.op, call.attrs, in_specs, out_specs, call.threads};
  const Guarded workspace(Shape{on.workspace_bytes(spec)}, DType::u8);
  const std::unique_ptr<Kernel> kernel = on.make(spec);
  REQUIRE(kernel != nullptr);
  StepState state = call.state ? *call.state : StepState{};
  KernelCall run;
  run.in = in_tensors;
  run.out = out_tensors;
  run.workspace = workspace.to_device(on);
  run.state = call.state ? static_cast<StepState*>(on.to_device(&state, sizeof(state))) : nullptr;
  run.sample_offset = call.sample_offset;
  run.accumulate = call.accumulate;
  kernel->run(run);
  on.synchronize();
  REQUIRE(workspace.guards_intact());
  for (size_t i = 0; i < in.size(); ++i) {
    INFO("guards of input " << i);
    REQUIRE((!in[i] || in[i]->guards_intact()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    INFO("guards of output " << i);
    REQUIRE((!out[i] || out[i]->guards_intact()));
  }
}

}  // namespace dstrain::parity
