// How a list of cases is made: operands in the run's dtype or others, and floors from their sizes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cuda/cases.h"
#include "runtime/ir/op.h"

namespace dstrain::bench {

inline constexpr DType kRun = DType::bf16;

inline Operand run(Shape shape) {
  return {.spec = {shape, kRun}};
}
inline Operand f32(Shape shape) {
  return {.spec = {shape, DType::f32}};
}
inline Operand ids(int64_t rows, int64_t below) {
  return {.spec = {Shape{rows}, DType::i32}, .below = below};
}
inline Operand numbers(Shape shape, int64_t first, int64_t step) {
  return {.spec = {shape, DType::i32}, .step = step, .first = first};
}
inline Operand updated(Operand o) {
  o.updated = true;
  return o;
}
inline Operand in_place(Operand o, int input) {
  o.same_as = input;
  return o;
}

inline double bytes_of(const Operand& o) {
  return static_cast<double>(o.spec.shape.elements() * size_of(o.spec.dtype));
}

// Returns the bytes that a kernel must move: every operand once, updated ones twice.
inline double bytes_of(const std::vector<Operand>& in, const std::vector<Operand>& out) {
  double bytes = 0;
  for (const Operand& o : in) bytes += bytes_of(o);
  for (const Operand& o : out) bytes += bytes_of(o) * (o.updated ? 2 : 1);
  return bytes;
}

// Cases that are added one after the other.
class CaseList {
 public:
  void add(std::string name, OpKind op, const OpAttrs& attrs, std::vector<Operand> in,
           std::vector<Operand> out, double flops = 0) {
    const double bytes = bytes_of(in, out);
    cases_.push_back({std::move(name), op, attrs, std::move(in), std::move(out), {bytes, flops}});
  }

  Case& last() { return cases_.back(); }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

// Adds the general ops over samples of `seq` tokens, r rows in all: a transposed copy, sums of rows and of columns, a product for
// each head, rows of a table, running sums and orders, windows and convolutions. `at` ends their names.
void add_general_cases(CaseList& list, int64_t seq, int64_t r, int64_t c, int64_t heads,
                       const std::string& at);

// Adds the ops of eight experts, of which each of r rows chooses two.
void add_expert_cases(CaseList& list, int64_t r, int64_t c, const std::string& at);

}  // namespace dstrain::bench
