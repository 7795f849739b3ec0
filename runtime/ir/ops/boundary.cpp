// Ops at the boundary of a step: over flat ranges of a unit, and the executor's own work.
#include "runtime/ir/ops/ops.h"

namespace dstrain::ops {
namespace {

// A sum of gradients is kept in f32 or in the run's dtype.
void expect_sum(const Operands& o, const Buffer& sum) {
  o.expect(sum.dtype == DType::f32 || sum.dtype == o.run(), "a sum is f32 or of the run's dtype");
}

void check_update(const Program& p, const Instruction& op, size_t slots) {
  const Operands o(p, op);
  o.count(1, 1, 1, slots + 1);
  const int64_t n = o.in(0).shape.elements();
  expect_sum(o, o.in(0));
  for (size_t i = 0; i < slots; ++i)
    if (o.has_out(i)) o.expect(o.out(i), n, DType::f32);
  if (o.has_out(slots)) o.expect(o.out(slots), n, p.dtype);
  o.no_alias();
}

// A collective between a whole and a slice of it; operand 0 is read, operand 1 written.
void check_slice(const Program& p, const Instruction& op, int whole) {
  const Operands o(p, op);
  o.count(1, 1, 1, 1);
  const Buffer& w = whole == 0 ? o.in(0) : o.out(0);
  const Buffer& s = whole == 0 ? o.out(0) : o.in(0);
  o.expect(w.dtype == s.dtype && w.shape.elements() % s.shape.elements() == 0,
           "the slice does not divide the whole");
}

}  // namespace

const OpRule cast{
    .name = "cast",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).shape.elements() == o.out(0).shape.elements(), "element counts differ");
          o.no_alias();
        },
};

const OpRule accumulate{
    .name = "accumulate",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(o.in(0).shape.elements() == o.out(0).shape.elements(), "element counts differ");
          expect_sum(o, o.out(0));
          o.no_alias();
        },
};

const OpRule round_wire{
    .name = "round_wire",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(op.reads[0] == op.writes[0], "works in place");
          o.expect(o.out(0).dtype == DType::f32, "rounds f32");
        },
};

const OpRule sum_squares{
    .name = "sum_squares",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          expect_sum(o, o.in(0));
          o.expect(o.out(0), 1, DType::f64);
        },
};

const OpRule adam{
    .name = "adam",
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 3); },
};

const OpRule sgd{
    .name = "sgd",
    .check = [](const Program& p, const Instruction& op) { check_update(p, op, 2); },
};

const OpRule load_batch{
    .name = "load_batch",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(0, 0, 2, 2);
          if (o.has_out(1)) o.expect(o.out(1).dtype == DType::i32, "targets are i32");
        },
};

const OpRule zero{
    .name = "zero",
    .check = [](const Program& p, const Instruction& op) { Operands(p, op).count(0, 0, 1, 1); },
};

const OpRule reduce_counts{.name = "reduce_counts"};

const OpRule all_reduce{
    .name = "all_reduce",
    .check =
        [](const Program& p, const Instruction& op) {
          const Operands o(p, op);
          o.count(1, 1, 1, 1);
          o.expect(op.reads[0] == op.writes[0], "works in place");
        },
};

const OpRule reduce_scatter{
    .name = "reduce_scatter",
    .check = [](const Program& p, const Instruction& op) { check_slice(p, op, 0); },
};

const OpRule all_gather{
    .name = "all_gather",
    .check = [](const Program& p, const Instruction& op) { check_slice(p, op, 1); },
};

const OpRule finish_gradients{.name = "finish_gradients"};

}  // namespace dstrain::ops
