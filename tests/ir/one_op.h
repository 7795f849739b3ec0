// OneOp: a program for the tests of one op's rule: what the rule accepts, what the op costs, and its backward
// pass.
#pragma once

#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {

inline constexpr ActivationAttrs kRelu{Activation::relu}, kGelu{Activation::gelu};

class OneOp {
 public:
  explicit OneOp(DType run = DType::f32) { program.dtype = run; }

  // A buffer in the run's dtype.
  BufferId run(Shape shape) { return buffer(shape, program.dtype); }
  BufferId buffer(Shape shape, DType dtype = DType::f32) {
    return program.add_buffer(
        {.name = fmt::format("b{}", program.buffers.size()), .shape = shape, .dtype = dtype});
  }
  BufferId parameter(Shape shape) {
    const BufferId id = run(shape);
    program.at(id).parameter = static_cast<int>(program.parameters.size());
    program.parameters.push_back({.name = program.at(id).name, .shape = shape, .value = id});
    return id;
  }

  // What the rule says against `op`; empty where it accepts it.
  std::string refusal(const Instruction& op) const {
    try {
      check_op(program, op);
      return {};
    } catch (const InternalError& e) {
      return e.what();
    }
  }

  // The ops that give the gradients of what `op` reads, where its first result has a gradient. Each of them
  // must be legal.
  std::vector<std::string> backward_ops(const Instruction& op) {
    Gradients gradients(program);
    gradients.mark(op);
    gradients.contribute(op.writes[0], gradients.like(op.writes[0]));
    program.instructions.clear();
    rule_of(op.op).backward(op, gradients);
    std::vector<std::string> names;
    for (const Instruction& i : program.instructions) {
      CHECK(refusal(i) == "");
      names.emplace_back(name_of(i.op));
    }
    return names;
  }

  Program program;
};

// `op` with another operand in place of its i-th one.
inline Instruction with_read(Instruction op, size_t i, BufferId id) {
  op.reads.at(i) = id;
  return op;
}
inline Instruction with_write(Instruction op, size_t i, BufferId id) {
  op.writes.at(i) = id;
  return op;
}
inline Instruction with_attrs(Instruction op, const OpAttrs& attrs) {
  op.attrs = attrs;
  return op;
}

}  // namespace dstrain
