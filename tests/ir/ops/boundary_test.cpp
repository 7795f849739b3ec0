#include "runtime/ir/quantized.h"
#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

TEST_CASE("cast goes between any dtypes of equally many elements") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::cast, .reads = {t.buffer({12})}, .writes = {t.run({3, 4})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 0, t.buffer({12}, DType::f16))) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({11}))), Contains("element counts differ"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
}

TEST_CASE("accumulate sums in f32 or in the run's dtype") {
  OneOp t(DType::bf16);
  const Instruction op{
      .op = OpKind::accumulate, .reads = {t.buffer({12}, DType::f16)}, .writes = {t.buffer({12})}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_write(op, 0, t.run({12}))) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({12}, DType::f16))), Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({11}))), Contains("element counts differ"));
}

TEST_CASE("ops over flat ranges may take neighbouring views of a buffer, but none that overlap") {
  OneOp t;
  const BufferId whole = t.buffer({32});
  Instruction op{.op = OpKind::accumulate,
                 .reads = {t.program.view(whole, 0, 16)},
                 .writes = {t.program.view(whole, 16, 16)}};
  CHECK(t.refusal(op) == "");
  op.writes[0] = t.program.view(whole, 15, 16);
  CHECK_THAT(t.refusal(op), Contains("overlaps"));
}

TEST_CASE("round_wire rounds f32 in place") {
  OneOp t(DType::bf16);
  const BufferId x = t.buffer({12}), narrow = t.run({12});
  const Instruction op{
      .op = OpKind::round_wire, .attrs = WireAttrs{DType::bf16}, .reads = {x}, .writes = {x}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({12}))), Contains("in place"));
  CHECK_THAT(t.refusal(with_write(with_read(op, 0, narrow), 0, narrow)), Contains("rounds f32"));
}

TEST_CASE("sum_squares writes one f64") {
  OneOp t(DType::f16);
  const Instruction op{
      .op = OpKind::sum_squares, .reads = {t.buffer({12})}, .writes = {t.buffer({1}, DType::f64)}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_read(op, 0, t.run({12}))) == "");
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({12}, DType::bf16))), Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({1}))), Contains("1 elements of f64"));
}

TEST_CASE(
    "quantize packs a byte for each value and a scale for each block of 256, dequantize takes "
    "them") {
  CHECK(quantized_bytes(0) == 0);
  CHECK(quantized_bytes(1) == 5);
  CHECK(quantized_bytes(256) == 260);
  CHECK(quantized_bytes(257) == 265);
  OneOp t(DType::bf16);
  const BufferId packed = t.buffer({265}, DType::u8), plain = t.run({257});
  for (const OpKind kind : {OpKind::quantize, OpKind::dequantize}) {
    const bool packs = kind == OpKind::quantize;
    const Instruction op{
        .op = kind, .reads = {packs ? plain : packed}, .writes = {packs ? packed : plain}};
    const auto with_plain = [&](BufferId id) {
      return packs ? with_read(op, 0, id) : with_write(op, 0, id);
    };
    const auto with_packed = [&](BufferId id) {
      return packs ? with_write(op, 0, id) : with_read(op, 0, id);
    };
    CHECK(t.refusal(op) == "");
    CHECK(t.refusal(with_plain(t.buffer({257}))) == "");
    CHECK_THAT(t.refusal(with_plain(t.buffer({257}, DType::f16))), Contains("values are f32"));
    CHECK_THAT(t.refusal(with_packed(t.buffer({264}, DType::u8))), Contains("265 elements of u8"));
    CHECK_THAT(t.refusal(with_packed(t.buffer({265}))), Contains("265 elements of u8"));
  }
}

TEST_CASE("dequantize takes equal parts, quantize packs one") {
  OneOp t(DType::bf16);
  const BufferId parts = t.buffer({3, quantized_bytes(100)}, DType::u8), plain = t.run({300});
  const Instruction unpack{.op = OpKind::dequantize, .reads = {parts}, .writes = {plain}};
  CHECK(t.refusal(unpack) == "");
  CHECK_THAT(t.refusal(with_write(unpack, 0, t.run({301}))), Contains("the parts are not equal"));
  CHECK_THAT(t.refusal(with_write(unpack, 0, t.run({303}))), Contains("elements of u8"));
  const Instruction pack{.op = OpKind::quantize, .reads = {plain}, .writes = {parts}};
  CHECK_THAT(t.refusal(pack), Contains("it packs one part"));
}

TEST_CASE("int4: two codes in a byte and a word of scales for each block of 128, in parts") {
  CHECK(int4_bytes(0) == 0);
  CHECK(int4_bytes(1) == 5);
  CHECK(int4_bytes(128) == 68);
  CHECK(int4_bytes(129) == 73);
  OneOp t(DType::bf16);
  const int64_t part = 65, bytes = int4_bytes(part);
  const BufferId received = t.buffer({3, 2, bytes}, DType::u8),
                 sums = t.buffer({2, bytes}, DType::u8);
  const Instruction pack{.op = OpKind::quantize_int4,
                         .attrs = Int4Attrs{.part = part, .group = 2},
                         .reads = {t.run({4 * part})},
                         .writes = {t.buffer({4, bytes}, DType::u8)}};
  CHECK(t.refusal(pack) == "");
  CHECK(t.refusal(with_read(pack, 0, t.buffer({4 * part}))) == "");
  CHECK_THAT(t.refusal(with_read(pack, 0, t.run({3 * part}))),
             Contains("does not divide the parts"));
  CHECK_THAT(t.refusal(with_read(pack, 0, t.run({3 * part + 1}))), Contains("are not equal"));
  CHECK_THAT(t.refusal(with_write(pack, 0, sums)), Contains("elements of u8"));

  const Instruction repack{.op = OpKind::requantize_int4,
                           .attrs = Int4Attrs{.part = part},
                           .reads = {received},
                           .writes = {sums}};
  CHECK(t.refusal(repack) == "");
  CHECK_THAT(t.refusal(with_write(repack, 0, t.buffer({3, bytes}, DType::u8))),
             Contains("elements of u8"));
  CHECK_THAT(t.refusal(with_read(repack, 0, t.buffer({6, bytes}, DType::u8))),
             Contains("those of K senders"));

  Instruction sum{.op = OpKind::sum_int4,
                  .attrs = Int4Attrs{.part = part},
                  .reads = {received},
                  .writes = {t.buffer({2 * part})}};
  CHECK(t.refusal(sum) == "");
  CHECK(t.refusal(with_write(sum, 0, t.run({part}))) == "");
  CHECK_THAT(t.refusal(with_write(sum, 0, t.buffer({part}, DType::f16))), Contains("a sum is f32"));
  CHECK_THAT(t.refusal(with_write(sum, 0, t.buffer({3 * part}))), Contains("are not there"));
  sum.attrs = Int4Attrs{.part = part, .first = 1};
  CHECK_THAT(t.refusal(sum), Contains("are not there"));
  sum.attrs = Int4Attrs{.part = part - 1};
  CHECK_THAT(t.refusal(sum), Contains("the parts have another size"));
}

TEST_CASE("error_squares writes two f64, of operands of equally many elements") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::error_squares,
                       .reads = {t.buffer({12}), t.run({12})},
                       .writes = {t.buffer({2}, DType::f64)}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({11}))), Contains("element counts differ"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({1}, DType::f64))),
             Contains("2 elements of f64"));
}

TEST_CASE("a registered buffer is updated by an f32 sum of its size") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::update_buffer,
                       .attrs = UpdateBufferAttrs{0.9f, 0.1f},
                       .reads = {t.buffer({12})},
                       .writes = {t.buffer({3, 4})}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 0, t.buffer({11}))), Contains("12 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({12}))), Contains("f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, op.reads[0])), Contains("overlaps"));
}
