#include <catch2/catch.hpp>

#include "runtime/ir/builder/builder.h"
#include "runtime/plan/passes/passes.h"

using namespace dstrain;

TEST_CASE("a constant is declared once for its values") {
  Program program;
  Builder b(program, {});
  b.unit("u");
  const float ones[] = {1, 1}, others[] = {1, 2};
  const BufferId first = b.constant("mask", {2}, DType::f32, ones);
  CHECK(b.constant("mask", {2}, DType::f32, ones) == first);
  CHECK(b.constant("mask", {2}, DType::f32, others) != first);
  CHECK(b.constant("mask", {1, 2}, DType::f32, ones) != first);
  REQUIRE(program.constants.size() == 3);
  CHECK(program.constants[1].bytes->size() == sizeof others);
  CHECK(program.at(first).lifetime == Lifetime::persistent);
}

TEST_CASE(
    "elements are seen in other rows where all that has read them takes elements without rows") {
  Program program;
  Builder b(program, {.batch = 1});
  b.unit("u");
  const BufferId x = b.parameter("x", {2, 6}, Init::normal, 1);
  const BufferId y = b.map(Formula::input(0) * 2, {2, 6}, {{x, dense_view({2, 6})}});
  CHECK(b.matrix(y, 6) == y);
  CHECK(b.matrix(y, 4) == y);
  CHECK(program.at(y).shape == Shape{3, 4});
  b.map(Formula::input(0) * 2, {y});  // by rows
  const BufferId copied = b.matrix(y, 6);
  CHECK(copied != y);
  CHECK(program.at(copied).shape == Shape{2, 6});
  CHECK(b.matrix(x, 4) != x);
}

TEST_CASE("no gradient goes back through detached values") {
  Program program;
  Builder b(program, {.batch = 1});
  b.unit("u");
  const BufferId w = b.parameter("w", {4}, Init::normal, 1), v = b.parameter("v", {4}, Init::ones);
  const BufferId held = b.detached(b.map(Formula::input(0) * 2, {4}, {{w, dense_view({4})}}));
  const BufferId largest = b.detached_reduce(Reduction::maximum, Formula::input(0), {4}, 0,
                                             {{w, dense_view({4})}}, DType::f32);
  View one;
  const BufferId y = b.map(Formula::input(0) * Formula::input(1) + Formula::input(2), {4},
                           {{held, dense_view({4})}, {v, dense_view({4})}, {largest, one}});
  b.loss(y, LossWeight::samples);
  backward(program);
  CHECK(program.parameters[0].gradient == kNone);
  CHECK(program.parameters[1].gradient != kNone);
}

TEST_CASE("a sort gives indices, and the values that they name have gradients") {
  Program program;
  Builder b(program, {.batch = 1});
  b.unit("u");
  const BufferId w = b.parameter("w", {2, 5}, Init::normal, 1);
  const SortAttrs largest{.lines = {5, 1}, .kept = 2, .descending = true};
  const BufferId order = b.sort(w, largest), values = b.sorted(w, order, largest);
  CHECK(program.at(order).dtype == DType::i32);
  CHECK(program.at(order).shape == Shape{2, 2, 1});
  CHECK(program.at(values).shape == program.at(order).shape);
  const BufferId sums = b.scan(values, {.lines = {2, 1}}, DType::f32);
  b.loss(sums, LossWeight::samples);
  const size_t forward = program.instructions.size();
  backward(program);
  REQUIRE(program.instructions.size() == forward + 2);
  CHECK(program.instructions[forward].op == OpKind::scan);
  CHECK(program.instructions[forward + 1].op == OpKind::put);
  CHECK(program.parameters[0].gradient != kNone);
}
