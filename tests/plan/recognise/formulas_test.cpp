// Maps whose formula an op is made for become that op.
#include <catch2/catch.hpp>

#include "runtime/ir/builder/builder.h"
#include "runtime/plan/recognise/recognise.h"

namespace dstrain {
namespace {

const Formula kFirst = Formula::input(0), kSecond = Formula::input(1);

// Returns the op that a map of matrices becomes; the second operand has the shape given.
Instruction recognised(const Formula& formula, const Shape& second, DType dtype = DType::bf16) {
  Program program;
  program.dtype = DType::bf16;
  const auto buffer = [&](const Shape& shape, DType type) {
    return program.add_buffer({.name = "b", .shape = shape, .dtype = type});
  };
  Instruction op{.op = OpKind::map,
                 .attrs = MapAttrs{formula},
                 .reads = {buffer({6, 4}, DType::bf16)},
                 .writes = {buffer({6, 4}, DType::bf16)}};
  if (formula.inputs() > 1) op.reads.push_back(buffer(second, dtype));
  program.instructions = {op};
  recognise(program);
  return program.instructions[0];
}

TEST_CASE("activations, gates, sums and factors are recognised, and nothing else is") {
  const Shape all{6, 4};
  const Instruction by_gelu = recognised(gelu(kFirst), all);
  CHECK(by_gelu.op == OpKind::activation);
  CHECK(attrs_as<ActivationAttrs>(by_gelu.attrs).activation == Activation::gelu);
  CHECK(recognised(relu(kFirst), all).op == OpKind::activation);
  CHECK(recognised(silu(kFirst) * kSecond, all).op == OpKind::gated);
  CHECK(recognised(kFirst + kSecond, all).op == OpKind::add_dropout);
  CHECK(attrs_as<ScaleAttrs>(recognised(kFirst * 0.3f, all).attrs).factor == 0.3f);
  CHECK(attrs_as<ScaleAttrs>(recognised(0.3f * kFirst, all).attrs).factor == 0.3f);
  const Instruction by_cap = recognised(30.0f * tangent(kFirst / 30.0f), all);
  CHECK(by_cap.op == OpKind::softcap);
  CHECK(attrs_as<SoftcapAttrs>(by_cap.attrs).cap == 30);
  CHECK(recognised(tangent(kFirst * 0.5f) * 2.0f, all).op == OpKind::softcap);
  CHECK(recognised(gelu(kFirst) * kSecond, all).op == OpKind::gated);
  // The gate is the operand that the activation is of.
  const Instruction other_way = recognised(kFirst * silu(kSecond), all);
  CHECK(other_way.op == OpKind::gated);
  CHECK(other_way.reads[0] > other_way.reads[1]);
  for (const Formula& other :
       {30.0f * tangent(kFirst / 20.0f), -2.0f * tangent(kFirst / -2.0f), tangent(kFirst),
        kFirst * kSecond, silu(kFirst), kFirst + 1, 0.3f * kFirst + kSecond, maximum(kFirst, 1)})
    CHECK(recognised(other, all).op == OpKind::map);
}

TEST_CASE("the exact gelu is recognised in the ways in which it is written") {
  const Shape all{6, 4};
  const Formula twice = 1 + error_function(kFirst / 1.41421356f);
  for (const Formula& way : {gelu_erf(kFirst), kFirst * 0.5f * twice, kFirst * (0.5f * twice),
                             0.5f * (twice * kFirst), kFirst * twice / 2}) {
    const Instruction op = recognised(way, all), gate = recognised(kSecond * way, all);
    CHECK(op.op == OpKind::activation);
    CHECK(attrs_as<ActivationAttrs>(op.attrs).activation == Activation::gelu_erf);
    CHECK(gate.op == OpKind::gated);
    CHECK(attrs_as<ActivationAttrs>(gate.attrs).activation == Activation::gelu_erf);
  }
  for (const Formula& other :
       {kFirst * 0.5f * (1 + error_function(kFirst * 1.41421356f)),
        kFirst * 0.5f * (1 + error_function(kFirst / 0.70710678f)),
        kFirst * 0.5f * (1 + error_function(kFirst)), kFirst * 0.25f * twice, kFirst * twice,
        kFirst * 0.5f * (error_function(kFirst / 1.41421356f) - 1)})
    CHECK(recognised(other, all).op == OpKind::map);
}

TEST_CASE("a map of operands that are broadcast, or of another type, stays one") {
  CHECK(recognised(kFirst + kSecond, {4}).op == OpKind::map);
  CHECK(recognised(kFirst + kSecond, {6, 4}, DType::f32).op == OpKind::map);
}

TEST_CASE(
    "a map that reads an operand in another order, or through which no gradient goes, stays one") {
  const Shape space{4, 4};
  Program program;
  const BufferId x = program.add_buffer({.name = "x", .shape = space}),
                 y = program.add_buffer({.name = "y", .shape = space});
  View transposed;
  transposed.strides = {1, 4};
  const auto recognised_map = [&](const MapAttrs& attrs) {
    program.instructions = {{.op = OpKind::map, .attrs = attrs, .reads = {x, x}, .writes = {y}}};
    recognise(program);
    return program.instructions[0].op;
  };
  const MapAttrs sum{kFirst + kSecond, space, {dense_view(space), dense_view(space)}};
  CHECK(recognised_map(sum) == OpKind::add_dropout);
  CHECK(recognised_map({kFirst + kSecond, space, {dense_view(space), transposed}}) == OpKind::map);
  program.at(x).dtype = program.at(y).dtype = DType::i32;
  CHECK(recognised_map(sum) == OpKind::map);
  program.at(x).dtype = program.at(y).dtype = DType::f32;
  MapAttrs detached = sum;
  detached.detached = true;
  CHECK(recognised_map(detached) == OpKind::map);
}

}  // namespace
}  // namespace dstrain
