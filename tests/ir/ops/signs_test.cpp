#include "runtime/ir/quantized.h"
#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("signs: a bit for each value and a scale for each block of 512, in equal parts") {
  CHECK(sign_bytes(0) == 0);
  CHECK(sign_bytes(1) == 5);
  CHECK(sign_bytes(512) == 68);
  CHECK(sign_bytes(513) == 73);
  OneOp t(DType::bf16);
  const int64_t n = 600;
  const BufferId packed = t.buffer({3, sign_bytes(n)}, DType::u8),
                 own = t.buffer({sign_bytes(n)}, DType::u8);
  const BufferId all = t.buffer({3 * n}), error = t.buffer({3 * n});
  const Instruction first{.op = OpKind::quantize_signs, .reads = {all}, .writes = {packed, error}};
  CHECK(t.refusal(first) == "");
  CHECK(t.refusal(with_read(first, 0, t.run({3 * n}))) == "");
  CHECK_THAT(t.refusal(with_read(first, 0, t.buffer({3 * n}, DType::f16))),
             Contains("f32 or of the run's dtype"));
  CHECK_THAT(t.refusal(with_read(first, 0, t.buffer({3 * n + 1}))), Contains("are not equal"));
  CHECK_THAT(t.refusal(with_write(first, 0, own)), Contains("elements of u8"));
  CHECK_THAT(t.refusal(with_write(first, 1, t.buffer({n}))), Contains("1800 elements of f32"));
  CHECK_THAT(t.refusal(with_write(first, 1, all)), Contains("overlaps"));

  const Instruction second{
      .op = OpKind::requantize_signs, .reads = {packed}, .writes = {own, t.buffer({n})}};
  CHECK(t.refusal(second) == "");
  CHECK_THAT(t.refusal(with_read(second, 0, own)), Contains("those of K senders"));
  CHECK_THAT(t.refusal(with_write(second, 0, packed)), Contains("elements of u8"));
  CHECK_THAT(t.refusal(with_write(second, 1, error)), Contains("elements of u8"));

  const Instruction last{.op = OpKind::dequantize_signs, .reads = {packed}, .writes = {all}};
  CHECK(t.refusal(last) == "");
  CHECK_THAT(t.refusal(with_write(last, 0, t.run({3 * n}))), Contains("1800 elements of f32"));
  CHECK_THAT(t.refusal(with_write(last, 0, t.buffer({n}))), Contains("elements of u8"));
}

TEST_CASE("an optimizer's momentum that travels") {
  OneOp t(DType::bf16);
  const BufferId m = t.buffer({48}), v = t.buffer({48});
  const Instruction momentum{.op = OpKind::local_momentum,
                             .attrs = LocalMomentumAttrs{.ranks = 2},
                             .reads = {t.run({48}), v},
                             .writes = {m}};
  CHECK(t.refusal(momentum) == "");
  CHECK(t.refusal(with_read(momentum, 0, t.buffer({48}))) == "");
  CHECK_THAT(t.refusal(with_read(momentum, 1, t.run({48}))), Contains("48 elements of f32"));
  CHECK_THAT(t.refusal(with_read(momentum, 0, t.buffer({48}, DType::f16))),
             Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_write(momentum, 0, t.run({48}))), Contains("48 elements of f32"));

  const BufferId bits = t.buffer({6}, DType::u8), fewer = t.buffer({5}, DType::u8);
  const Instruction positive{.op = OpKind::positive_bits, .reads = {v}, .writes = {bits}};
  CHECK(t.refusal(positive) == "");
  CHECK_THAT(t.refusal(with_read(positive, 0, t.run({48}))), Contains("48 elements of f32"));
  CHECK_THAT(t.refusal(with_read(positive, 0, t.buffer({44}))), Contains("whole bytes"));
  CHECK_THAT(t.refusal(with_write(positive, 0, fewer)), Contains("6 elements of u8"));
  CHECK(t.refusal(with_read(momentum, 1, bits)) == "");
  CHECK_THAT(t.refusal(with_read(momentum, 1, fewer)), Contains("a bit for each element"));

  Instruction update{
      .op = OpKind::frozen_adam, .reads = {m, v}, .writes = {t.buffer({48}), t.run({48})}};
  CHECK(t.refusal(update) == "");
  CHECK_THAT(t.refusal(with_read(update, 1, t.run({48}))), Contains("48 elements of f32"));
  CHECK_THAT(t.refusal(with_write(update, 1, t.buffer({48}))), Contains("48 elements of bf16"));
  update.writes[1] = kNone;
  CHECK(t.refusal(update) == "");
}

TEST_CASE("local steps, and what they lead to") {
  OneOp t(DType::bf16);
  const BufferId m = t.buffer({48}), v = t.buffer({48}), sum = t.buffer({48}),
                 master = t.buffer({48}), param = t.run({48});
  const Instruction step{.op = OpKind::local_step,
                         .attrs = LocalMomentumAttrs{.ranks = 2},
                         .reads = {t.run({48}), v},
                         .writes = {m, sum}};
  CHECK(t.refusal(step) == "");
  CHECK_THAT(t.refusal(with_read(step, 0, t.buffer({48}, DType::f16))), Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_write(step, 1, param)), Contains("48 elements of f32"));
  const Instruction weights{
      .op = OpKind::local_weights, .reads = {master, v, sum}, .writes = {param}};
  CHECK(t.refusal(weights) == "");
  CHECK_THAT(t.refusal(with_read(weights, 2, param)), Contains("48 elements of f32"));
  CHECK_THAT(t.refusal(with_write(weights, 0, m)), Contains("48 elements of bf16"));
  Instruction end{.op = OpKind::end_local_steps, .reads = {v}, .writes = {master, m, sum, param}};
  CHECK(t.refusal(end) == "");
  CHECK_THAT(t.refusal(with_write(end, 2, param)), Contains("48 elements of f32"));
  CHECK_THAT(t.refusal(with_write(end, 0, v)), Contains("overlaps"));
  end.writes.pop_back();
  CHECK(t.refusal(end) == "");
}

TEST_CASE("1-bit Lamb's ops have values of whole parameters beside their elements") {
  OneOp t(DType::bf16);
  const BufferId x = t.buffer({48}), m = t.buffer({48}), v = t.buffer({48}), fresh = t.buffer({48}),
                 master = t.buffer({48}), direction = t.buffer({48});
  const BufferId scale = t.buffer({1}), factor = t.buffer({1}), largest = t.buffer({1}),
                 two = t.buffer({2}), pairs = t.buffer({4}, DType::f64);
  const Instruction average{.op = OpKind::lamb_average,
                            .attrs = LambAverageAttrs{},
                            .reads = {t.buffer({12}, DType::f64)},
                            .writes = {two}};
  CHECK(t.refusal(average) == "");
  CHECK_THAT(t.refusal(with_read(average, 0, t.buffer({6}, DType::f64))), Contains("f64 pairs"));
  CHECK_THAT(t.refusal(with_read(average, 0, t.buffer({12}))), Contains("f64 pairs"));

  const Instruction scaling{.op = OpKind::momentum_scale, .reads = {m, factor}, .writes = {scale}};
  CHECK(t.refusal(scaling) == "");
  CHECK_THAT(t.refusal(with_write(scaling, 0, two)), Contains("1 elements of f32"));

  const Instruction momentum{.op = OpKind::scaled_momentum,
                             .attrs = LocalMomentumAttrs{.ranks = 2},
                             .reads = {t.run({48}), v, m, scale},
                             .writes = {x}};
  CHECK(t.refusal(momentum) == "");
  CHECK_THAT(t.refusal(with_read(momentum, 0, t.buffer({48}, DType::f16))),
             Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_read(momentum, 3, two)), Contains("1 elements of f32"));
  CHECK(t.refusal(with_write(momentum, 0, m)) == "");
  CHECK_THAT(t.refusal(with_write(momentum, 0, v)), Contains("overlaps"));
  CHECK(t.refusal(with_read(momentum, 1, t.buffer({6}, DType::u8))) == "");
  CHECK_THAT(t.refusal(with_read(momentum, 1, t.buffer({5}, DType::u8))),
             Contains("a bit for each element"));

  const Instruction step{.op = OpKind::frozen_lamb_direction,
                         .attrs = FrozenLambAttrs{},
                         .reads = {v, master, scale, factor},
                         .writes = {x, m, fresh, direction, largest}};
  CHECK(t.refusal(step) == "");
  CHECK_THAT(t.refusal(with_read(step, 1, t.run({48}))), Contains("48 elements of f32"));
  CHECK_THAT(t.refusal(with_write(step, 4, two)), Contains("1 elements of f32"));
  CHECK_THAT(t.refusal(with_write(step, 2, v)), Contains("overlaps"));

  const Instruction limit{.op = OpKind::lamb_factor,
                          .attrs = LambFactorAttrs{},
                          .reads = {t.buffer({2}), pairs},
                          .writes = {two}};
  CHECK(t.refusal(limit) == "");
  CHECK(t.refusal(with_read(limit, 0, t.buffer({6}))) == "");
  CHECK_THAT(t.refusal(with_read(limit, 0, t.buffer({3}))), Contains("those of the parameters"));
  CHECK_THAT(t.refusal(with_read(limit, 1, t.buffer({2}, DType::f64))),
             Contains("pairs of the parameters"));

  Instruction move{.op = OpKind::frozen_lamb,
                   .reads = {direction, scale, factor},
                   .writes = {master, t.run({48})}};
  CHECK(t.refusal(move) == "");
  CHECK_THAT(t.refusal(with_write(move, 1, x)), Contains("48 elements of bf16"));
  move.writes[1] = kNone;
  CHECK(t.refusal(move) == "");
}
