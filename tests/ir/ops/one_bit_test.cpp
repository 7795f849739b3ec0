#include "runtime/ir/quantized.h"
#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

// An operand of an instruction that becomes another buffer, and what is said about that; empty: it is accepted.
struct Change {
  enum Operand { read, write } kind;
  size_t operand;
  BufferId to;
  const char* refusal;
};

// Checks that the instruction is accepted, and what becomes of it with each of the changes.
void check_changes(const OneOp& t, const Instruction& op, const std::vector<Change>& changes) {
  CAPTURE(name_of(op.op));
  CHECK(t.refusal(op) == "");
  for (const Change& c : changes) {
    CAPTURE(c.kind, c.operand, c.refusal);
    const std::string said = t.refusal(c.kind == Change::read ? with_read(op, c.operand, c.to)
                                                              : with_write(op, c.operand, c.to));
    if (*c.refusal)
      CHECK_THAT(said, Contains(c.refusal));
    else
      CHECK(said == "");
  }
}

constexpr auto kRead = Change::read, kWrite = Change::write;

}  // namespace

TEST_CASE("signs: a bit for each value and a scale for each block of 512, in equal parts") {
  CHECK(sign_bytes(0) == 0);
  CHECK(sign_bytes(1) == 5);
  CHECK(sign_bytes(512) == 68);
  CHECK(sign_bytes(513) == 73);
  OneOp t(DType::bf16);
  const int64_t n = 600;
  const BufferId packed = t.buffer({3, sign_bytes(n)}, DType::u8),
                 own = t.buffer({sign_bytes(n)}, DType::u8), part = t.buffer({n}),
                 all = t.buffer({3 * n}), error = t.buffer({3 * n});
  check_changes(t, {.op = OpKind::quantize_signs, .reads = {all}, .writes = {packed, error}},
                {{kRead, 0, t.run({3 * n}), ""},
                 {kRead, 0, t.buffer({3 * n}, DType::f16), "f32 or of the run's dtype"},
                 {kRead, 0, t.buffer({3 * n + 1}), "are not equal"},
                 {kWrite, 0, own, "elements of u8"},
                 {kWrite, 1, part, "1800 elements of f32"},
                 {kWrite, 1, all, "overlaps"}});
  check_changes(t, {.op = OpKind::requantize_signs, .reads = {packed}, .writes = {own, part}},
                {{kRead, 0, own, "those of K senders"},
                 {kWrite, 0, packed, "elements of u8"},
                 {kWrite, 1, error, "elements of u8"}});
  check_changes(
      t, {.op = OpKind::dequantize_signs, .reads = {packed}, .writes = {all}},
      {{kWrite, 0, t.run({3 * n}), "1800 elements of f32"}, {kWrite, 0, part, "elements of u8"}});
}

TEST_CASE("what ranks make of their own gradients, and steps with a frozen second moment") {
  OneOp t(DType::bf16);
  const BufferId m = t.buffer({48}), v = t.buffer({48}), sum = t.buffer({48}),
                 master = t.buffer({48}), param = t.run({48}), x = t.buffer({48}),
                 half = t.buffer({48}, DType::f16), bits = t.buffer({6}, DType::u8),
                 fewer = t.buffer({5}, DType::u8), one = t.buffer({1}), two = t.buffer({2});
  check_changes(t, {.op = OpKind::positive_bits, .reads = {v}, .writes = {bits}},
                {{kRead, 0, param, "48 elements of f32"},
                 {kRead, 0, t.buffer({44}), "whole bytes"},
                 {kWrite, 0, fewer, "6 elements of u8"}});
  const std::vector<Change> of_momenta{{kRead, 0, half, "a sum is f32"},
                                       {kRead, 1, param, "48 elements of f32"},
                                       {kRead, 1, bits, ""},
                                       {kRead, 1, fewer, "a bit for each element"},
                                       {kWrite, 0, param, "48 elements of f32"},
                                       {kWrite, 0, one, "48 elements of f32"}};
  Instruction momentum{.op = OpKind::local_momentum, .reads = {param, v}, .writes = {m}};
  check_changes(t, momentum, of_momenta);
  check_changes(t, with_read(momentum, 0, sum), {});
  momentum.writes = {m, sum};
  check_changes(t, momentum,
                {{kWrite, 1, param, "48 elements of f32"}, {kWrite, 1, v, "overlaps"}});
  momentum = {.op = OpKind::local_momentum, .reads = {param, v, m, one}, .writes = {x}};
  check_changes(t, momentum, of_momenta);
  check_changes(t, momentum,
                {{kRead, 2, two, "48 elements of f32"},
                 {kRead, 3, two, "1 elements of f32"},
                 {kWrite, 0, m, ""},
                 {kWrite, 0, v, "overlaps"}});
  momentum.attrs = LocalMomentumAttrs{.of_scaled = true};
  check_changes(t, momentum, {{kRead, 3, kNone, "has it as operand 3"}});
  momentum.attrs = LocalMomentumAttrs{.share = 0};
  CHECK_THAT(t.refusal(momentum), Contains("there is no rank"));

  check_changes(t, {.op = OpKind::frozen_adam, .reads = {m, v}, .writes = {master, param}},
                {{kRead, 1, param, "48 elements of f32"},
                 {kWrite, 1, sum, "48 elements of bf16"},
                 {kWrite, 1, kNone, ""}});
  check_changes(t, {.op = OpKind::local_weights, .reads = {master, v, sum}, .writes = {param}},
                {{kRead, 2, param, "48 elements of f32"}, {kWrite, 0, m, "48 elements of bf16"}});
  check_changes(t, {.op = OpKind::end_local_steps, .reads = {v}, .writes = {master, m, sum, param}},
                {{kWrite, 2, param, "48 elements of f32"},
                 {kWrite, 0, v, "overlaps"},
                 {kWrite, 3, kNone, ""}});
}

TEST_CASE("1-bit Lamb's ops have values of whole parameters beside their elements") {
  OneOp t(DType::bf16);
  const BufferId x = t.buffer({48}), m = t.buffer({48}), v = t.buffer({48}), fresh = t.buffer({48}),
                 master = t.buffer({48}), direction = t.buffer({48}), param = t.run({48});
  const BufferId scale = t.buffer({1}), factor = t.buffer({1}), largest = t.buffer({1}),
                 two = t.buffer({2}), pair = t.buffer({2}, DType::f64),
                 pairs = t.buffer({4}, DType::f64);
  check_changes(t,
                {.op = OpKind::lamb_average,
                 .attrs = LambAverageAttrs{},
                 .reads = {t.buffer({12}, DType::f64)},
                 .writes = {two}},
                {{kRead, 0, t.buffer({6}, DType::f64), "f64 pairs"},
                 {kRead, 0, t.buffer({12}), "f64 pairs"}});
  check_changes(t, {.op = OpKind::momentum_scale, .reads = {m, factor}, .writes = {scale}},
                {{kWrite, 0, two, "1 elements of f32"}});
  check_changes(t,
                {.op = OpKind::frozen_lamb_direction,
                 .attrs = FrozenStepAttrs{},
                 .reads = {v, master, scale, factor},
                 .writes = {x, m, fresh, direction, largest}},
                {{kRead, 1, param, "48 elements of f32"},
                 {kWrite, 4, two, "1 elements of f32"},
                 {kWrite, 2, v, "overlaps"}});
  check_changes(t,
                {.op = OpKind::lamb_factor,
                 .attrs = LambFactorAttrs{},
                 .reads = {t.buffer({2}), pairs},
                 .writes = {two}},
                {{kRead, 0, t.buffer({6}), ""},
                 {kRead, 0, t.buffer({3}), "those of the parameters"},
                 {kRead, 1, pair, "pairs of the parameters"}});
  check_changes(
      t, {.op = OpKind::lamb, .reads = {direction, scale, factor}, .writes = {master, param}},
      {{kRead, 1, pair, "1 elements of f32"},
       {kRead, 2, two, "1 elements of f32"},
       {kWrite, 1, x, "48 elements of bf16"},
       {kWrite, 1, kNone, ""}});
}
