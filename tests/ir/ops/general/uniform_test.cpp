// The rule of uniform, and the draws of a model.
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/passes/passes.h"
#include "tests/ir/one_op.h"

namespace dstrain {
namespace {

using Catch::Contains;

TEST_CASE("uniform writes f32, of each sample as many elements") {
  OneOp t(DType::bf16);
  const BufferId y = t.buffer({3, 4, 5});
  const Instruction op{
      .op = OpKind::uniform, .attrs = UniformAttrs{.samples = 4, .inner = 5}, .writes = {y}};
  CHECK(t.refusal(op) == "");
  CHECK(t.refusal(with_attrs(op, UniformAttrs{.samples = 2, .inner = 10})) == "");
  CHECK_THAT(t.refusal(with_attrs(op, UniformAttrs{.samples = 4, .inner = 4})),
             Contains("as many elements of each sample"));
  CHECK_THAT(t.refusal(with_attrs(op, UniformAttrs{.samples = 0, .inner = 5})),
             Contains("at least one element"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({3, 4, 5}))), Contains("is f32"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.buffer({0, 4, 5}))), Contains("as many elements"));
  Instruction reads = op;
  reads.reads = {y};
  CHECK_FALSE(t.refusal(reads).empty());
}

TEST_CASE("draws have sites of their own, count samples, and have no gradient") {
  Program program;
  Builder b(program, {.dtype = DType::bf16, .batch = 4});
  b.unit("u");
  const BufferId w = b.parameter("w", {6, 8, 5}, Init::normal, 1);
  const BufferId rows = b.uniform({8, 5}, 0), columns = b.uniform({6, 8, 5}, 1),
                 whole = b.uniform({7}, Builder::kNoSamples);
  const auto attrs_of = [&program](BufferId id) {
    for (const Instruction& op : program.instructions)
      if (op.writes[0] == id) return attrs_as<UniformAttrs>(op.attrs);
    return UniformAttrs{};
  };
  CHECK(attrs_of(rows) == UniformAttrs{.site = 0, .samples = 4, .inner = 10});
  CHECK(attrs_of(columns) == UniformAttrs{.site = 1, .samples = 4, .inner = 10});
  CHECK(attrs_of(whole) == UniformAttrs{.site = 2, .samples = 1, .inner = 7});
  CHECK(program.at(rows).dtype == DType::f32);
  CHECK_THROWS_AS(b.uniform({7, 5}, 0), InternalError);
  const Shape space{6, 8, 5};
  b.loss(b.map(Formula::input(0) * Formula::input(1), space,
               {{w, dense_view(space)}, {columns, dense_view(space)}}, DType::f32),
         LossWeight::samples);
  const size_t forward = program.instructions.size();
  backward(program);
  REQUIRE(program.instructions.size() > forward);
  for (size_t i = forward; i < program.instructions.size(); ++i)
    for (const BufferId id : program.instructions[i].writes)
      CHECK(program.at(id).name != "d_drawn");
  CHECK(program.parameters[0].gradient != kNone);
}

}  // namespace
}  // namespace dstrain
