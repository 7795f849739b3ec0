// The work of a model's forward pass as DeepSpeed's flops profiler counts it, and the module of the model that does it:
// modules are the names of parameters, cut at their dots. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/ir/program.h"
#include "runtime/ir/rule.h"

namespace dstrain {

// What one instruction does in one micro-batch.
struct ForwardWork {
  // The path of the module that it belongs to: "decoder.layers.0.attn.qkv"; empty: the model itself.
  std::string module{};
  // As the op's rule counts it (OpRule::profiled): products, attention over all pairs of queries and keys (also those that
  // do not see each other), layer norms (5 FLOPs an element) and activations (1). Embeddings, RMS norms, rotations, dropout,
  // additions and the loss count nothing.
  double macs = 0, flops = 0;
};

// Returns whether an instruction is a part of the forward pass: it is issued for every micro-batch, before the backward
// pass.
bool is_forward(const Instruction& op);

// Returns the work of every instruction of the program; none for those that are not a part of the forward pass.
//
// An operation of the model belongs to the module whose parameter it reads first, and one without parameters to the
// innermost module that contains those around it in its layer. A weight of another layer (a tied head) makes the layer a
// module. What the plan adds, such as gathers, belongs to the model itself.
std::vector<ForwardWork> forward_work(const Program& program);

// Returns whether an operation of the forward pass is one of the model's.
inline bool is_of_model(OpKind op) {
  return rule_of(op).of_model;
}

// The parameter of a model whose value a buffer is, as a module has it.
struct ModuleParameter {
  const Parameter* parameter = nullptr;  // null: the buffer is no parameter's value
  std::string module{};
  bool tied = false;  // it is a parameter of another layer
};

// The modules of the parameters that instructions read.
class ParameterModules {
 public:
  // The caller must keep the program alive.
  explicit ParameterModules(const Program& program);
  // Returns the parameter whose value `op` reads from the buffer. What a product reads of a weight in another form, such as an
  // unpacked frozen weight, counts as its value.
  ModuleParameter of(const Instruction& op, BufferId id) const;

 private:
  const Program& program_;
  std::vector<BufferId> packed_;  // by buffer: the weight that it is another form of
};

// Returns the path of the module that a parameter belongs to: its name up to the last dot.
std::string module_of(std::string_view parameter);

}  // namespace dstrain
