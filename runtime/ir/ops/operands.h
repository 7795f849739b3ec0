// Operands: the checks that the rules of the ops share.
#pragma once

#include "runtime/core/error.h"
#include "runtime/ir/op_rule.h"

namespace dstrain::ops {

// Gives a rule access to the operands of one instruction and checks them. Every check throws InternalError
// naming the op and its operands.
class Operands {
 public:
  Operands(const Program& program, const Instruction& op) : program_(program), op_(op) {}

  // Throws unless the numbers of operands are within [min, max].
  void count(size_t reads_min, size_t reads_max, size_t writes_min, size_t writes_max) const;
  bool has_in(size_t i) const { return i < op_.reads.size() && op_.reads[i] != kNone; }
  bool has_out(size_t i) const { return i < op_.writes.size() && op_.writes[i] != kNone; }
  const Buffer& in(size_t i) const;
  const Buffer& out(size_t i) const;
  // Throws unless `buffer` has this number of elements, in any dimensions, and this dtype.
  void expect(const Buffer& buffer, int64_t elements, DType dtype) const;
  void expect(bool ok, std::string_view what) const;
  // Throws if a written buffer overlaps a read one, except for the pair (allowed_in, allowed_out).
  void no_alias(int allowed_in = -1, int allowed_out = -1) const;
  // Throws if operand `i` is present and is no documents of `rows` rows.
  void expect_documents(size_t i, int64_t rows) const {
    if (has_in(i)) expect(in(i), rows, DType::i32);
  }
  // Throws unless `rows` rows are whole samples, or such a part of a micro-batch of samples.
  void expect_samples(const RowsPart& part, int64_t rows, int64_t seq_len) const {
    expect(divides_samples(part, rows, seq_len), "rows must divide into samples");
  }
  // Returns the dtype of `values`, which the op's other values have too: f32 or a 16-bit one, else throws.
  DType values(const Buffer& values) const;
  // Returns the run's dtype, which parameters have.
  DType run() const { return program_.dtype; }
  const OpAttrs& attrs() const { return op_.attrs; }

 private:
  const Program& program_;
  const Instruction& op_;
};

// Rows and columns of a row-major matrix of any rank >= 1: columns are the last dimension.
inline int64_t columns(const Buffer& b) {
  return b.shape[-1];
}
inline int64_t rows(const Buffer& b) {
  return b.shape.elements() / b.shape[-1];
}

// The work of an op that counts `kFlops` FLOPs for each element of its first output.
template <int kFlops>
CountedWork flops_per_element(const Program& program, const Instruction& op, const WeightSizes&) {
  return {.flops = kFlops * static_cast<double>(program.at(op.writes[0]).shape.elements())};
}

}  // namespace dstrain::ops
