#include <catch2/catch.hpp>

#include "runtime/ir/builder/builder.h"
#include "runtime/plan/passes/passes.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// A unit with parameters of 15 and 17 elements, laid out; with gradients where `trained`.
Program laid_out(const Place& place, const Residency& residency, bool trained = true) {
  Program program;
  Builder builder(program, {});
  builder.unit("u");
  builder.parameter("u.weight", {5, 3}, Init::normal);
  builder.parameter("u.bias", {17}, Init::zeros);
  for (Parameter& p : program.parameters)
    if (trained) p.gradient = program.add_buffer({.name = "grad:" + p.name, .shape = p.shape});
  layout(program, Job{}, place, residency);
  return program;
}

const Buffer& buffer_of(const Program& program, const std::string& name) {
  REQUIRE(program.find(name) != kNone);
  return program.at(program.find(name));
}

}  // namespace

TEST_CASE("rows of padding lie between a parameter and the next one") {
  Program program;
  Builder builder(program, {.row_multiple = 8});
  builder.unit("u");
  builder.vocabulary("u.weight", {5, 3}, Init::normal);
  builder.parameter("u.bias", {17}, Init::zeros);
  layout(program, Job{}, {}, {});
  CHECK(program.parameters[0].shape == Shape{5, 3});
  CHECK(program.parameters[1].offset == 32);  // 8 rows of 3, up to a cache line
  CHECK(program.units[0].elements == 64);
}

TEST_CASE("parameters begin at cache lines, and ranks own equal slices of a unit") {
  for (const auto& [ranks, elements] : {std::pair{1, 48}, {2, 64}, {3, 48}, {4, 64}}) {
    const Program program = laid_out(data_place(0, ranks), {});
    CHECK(program.parameters[0].offset == 0);
    CHECK(program.parameters[1].offset == 16);
    CHECK(program.units[0].elements == elements);
    CHECK(buffer_of(program, "params:u").shape == Shape{elements});
  }
}

TEST_CASE("parameters and gradients are views of their unit where those are whole") {
  const Program program = laid_out(data_place(1, 2), {});
  const BufferId values = program.find("params:u"), gradients = program.find("grads:u");
  for (const Parameter& p : program.parameters) {
    CHECK(program.at(p.value).parent == values);
    CHECK(program.at(p.value).parent_offset == p.offset);
    CHECK(program.at(p.gradient).parent == gradients);
    CHECK(program.at(p.gradient).parent_offset == p.offset);
  }
  CHECK(laid_out(data_place(1, 2), {}, false).find("grads:u") == kNone);
}

TEST_CASE(
    "of what is sharded a rank holds its slice: gathered parameters have a place of their own, and "
    "so have the gradients of a micro-batch") {
  const Program sharded = laid_out(data_place(1, 2), {.optimizer = Held::slice,
                                                      .gradients = Held::slice,
                                                      .parameters = Held::slice,
                                                      .reduce = ReduceMode::micro_batch});
  CHECK(buffer_of(sharded, "params:u").shape == Shape{32});
  CHECK(buffer_of(sharded, "grads:u").shape == Shape{32});
  CHECK(buffer_of(sharded, "micro_grads:u").memory == MemoryClass::communication);
  const BufferId micro = sharded.units[0].buffers.micro_gradients.id;
  CHECK(micro == sharded.find("micro_grads:u"));
  for (const Parameter& p : sharded.parameters) {
    CHECK(sharded.at(p.value).parent == kNone);
    CHECK(sharded.at(p.gradient).parent == micro);
    CHECK(sharded.at(p.gradient).parent_offset == p.offset);
  }
}

TEST_CASE("where gradients are held in 16 bits, those of a micro-batch are in f32 beside them") {
  const Program program = laid_out(data_place(1, 2), {.grad_dtype = DType::bf16});
  CHECK(buffer_of(program, "grads:u").dtype == DType::bf16);
  CHECK(buffer_of(program, "grads:u").shape == Shape{64});
  CHECK(buffer_of(program, "micro_grads:u").dtype == DType::f32);
  CHECK(buffer_of(program, "micro_grads:u").memory == MemoryClass::workspace);
  for (const Parameter& p : program.parameters)
    CHECK(program.at(p.gradient).parent == program.find("micro_grads:u"));
}
