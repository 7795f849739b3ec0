#include "models/exported/fold/evaluate.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "models/exported/graph/op_schemas.h"
#include "runtime/core/dtype.h"
#include "runtime/core/error.h"
#include "tests/models/exported/fold/constant_program.h"

namespace dstrain::exported {
namespace {

using json = nlohmann::json;
using P = ConstantProgram;
using Floats = std::vector<float>;
using Wholes = std::vector<int64_t>;
using Truths = std::vector<char>;

constexpr int kU8 = 1, kI32 = 4, kF16 = 6, kF64 = 8;

TEST_CASE("every operator that is computed has a schema, once") {
  REQUIRE(evaluated_ops().size() > 150);
  for (size_t i = 0; i < evaluated_ops().size(); ++i) {
    const EvaluatedOp& op = evaluated_ops()[i];
    CAPTURE(op.target);
    CHECK(find_schema(op.target) != nullptr);
    CHECK((i == 0 || evaluated_ops()[i - 1].target < op.target));
  }
}

TEST_CASE("types are promoted as PyTorch does") {
  CHECK(promoted(ScalarType::u8, ScalarType::i8) == ScalarType::i16);
  CHECK(promoted(ScalarType::i64, ScalarType::f16) == ScalarType::f16);
  CHECK(promoted(ScalarType::bf16, ScalarType::f16) == ScalarType::f32);
  CHECK(promoted(ScalarType::f64, ScalarType::f32) == ScalarType::f64);
  CHECK(promoted(ScalarType::boolean, ScalarType::u8) == ScalarType::u8);
  const auto operand = [](ScalarType type, size_t rank, bool is_number = false) {
    HostTensor tensor;
    tensor.type = type;
    tensor.sizes.assign(rank, 1);
    return Operand{tensor, is_number};
  };
  // A tensor without dimensions, or a number, decides only between truth values, whole numbers and fractions.
  CHECK(result_type({operand(ScalarType::f16, 1), operand(ScalarType::f64, 0)}) == ScalarType::f16);
  CHECK(result_type({operand(ScalarType::i32, 1), operand(ScalarType::f64, 0)}) == ScalarType::f64);
  CHECK(result_type({operand(ScalarType::i32, 1), operand(ScalarType::i64, 0, true)}) ==
        ScalarType::i32);
  CHECK(result_type({operand(ScalarType::i32, 1), operand(ScalarType::f64, 0, true)}) ==
        ScalarType::f32);
  CHECK(result_type({operand(ScalarType::f16, 0), operand(ScalarType::f64, 0, true)}) ==
        ScalarType::f16);
  CHECK(result_type({operand(ScalarType::boolean, 2), operand(ScalarType::i64, 0, true)}) ==
        ScalarType::i64);
}

TEST_CASE("ranges and tensors of one number are made") {
  P p;
  CHECK(p.wholes("aten.arange.start_step",
                 {{"start", P::whole(7)}, {"end", P::whole(0)}, {"step", P::whole(-3)}},
                 {3}) == Wholes{7, 4, 1});
  CHECK(p.floats("aten.arange.start", {{"start", P::real(0.5)}, {"end", P::whole(3)}}, {3}) ==
        Floats{0.5, 1.5, 2.5});
  CHECK(p.values<int32_t>("aten.arange.default", {{"end", P::whole(2)}, {"dtype", P::type(kI32)}},
                          kI32, {2}) == std::vector<int32_t>{0, 1});
  CHECK(p.floats("aten.ones.default", {{"size", P::list({2, 1})}}, {2, 1}) == Floats{1, 1});
  CHECK(p.wholes("aten.full.default", {{"size", P::list({2})}, {"fill_value", P::whole(-4)}},
                 {2}) == Wholes{-4, -4});
  CHECK(p.floats("aten.eye.m", {{"n", P::whole(2)}, {"m", P::whole(3)}}, {2, 3}) ==
        Floats{1, 0, 0, 0, 1, 0});
  CHECK(p.floats("aten.scalar_tensor.default", {{"s", P::whole(3)}}, json::array()) == Floats{3});
}

TEST_CASE("functions of elements have PyTorch's types and values") {
  P p;
  p.with_floats("f", {4}, {-1.5F, 0.5F, 2.5F, NAN})
      .with_wholes("i", {3}, {-7, 0, 7})
      .with_floats("g", {2}, {0.25F, 4.F});
  CHECK(p.floats("aten.round.default", {{"self", ref("g")}}, {2}) == Floats{0, 4});
  CHECK(p.floats("aten.rsqrt.default", {{"self", ref("g")}}, {2}) == Floats{2, 0.5});
  CHECK(p.floats("aten.exp.default", {{"self", ref("i")}}, {3})[1] == 1);
  CHECK(p.wholes("aten.abs.default", {{"self", ref("i")}}, {3}) == Wholes{7, 0, 7});
  CHECK(p.wholes("aten.bitwise_not.default", {{"self", ref("i")}}, {3}) == Wholes{6, -1, -8});
  CHECK(p.truths("aten.isnan.default", {{"self", ref("f")}}, {4}) == Truths{0, 0, 0, 1});
  CHECK(p.truths("aten.logical_not.default", {{"self", ref("i")}}, {3}) == Truths{0, 1, 0});
  CHECK(p.wholes("aten._to_copy.default",
                 {{"self", ref("g")}, {"dtype", P::type(SmallProgram::kI64)}},
                 {2}) == Wholes{0, 4});
  const auto halves = p.values<uint16_t>("aten._to_copy.default",
                                         {{"self", ref("g")}, {"dtype", P::type(kF16)}}, kF16, {2});
  CHECK(halves == std::vector<uint16_t>{to_f16(0.25F).bits, to_f16(4.F).bits});
  CHECK(p.values<uint8_t>("aten._to_copy.default", {{"self", ref("i")}, {"dtype", P::type(kU8)}},
                          kU8, {3}) == std::vector<uint8_t>{249, 0, 7});
}

TEST_CASE("functions of two tensors are broadcast, and round and wrap as PyTorch's do") {
  P p;
  p.with_wholes("a", {2, 1}, {-7, 7})
      .with_wholes("b", {3}, {2, -2, 3})
      .with_floats("f", {2, 1}, {-7.F, 7.F})
      .with_floats("h", {2}, {NAN, 1.F})
      .with_floats("zero", {1}, {0.F});
  CHECK(p.wholes("aten.add.Tensor",
                 {{"self", ref("a")}, {"other", ref("b")}, {"alpha", P::whole(2)}},
                 {2, 3}) == Wholes{-3, -11, -1, 11, 3, 13});
  CHECK(p.wholes("aten.floor_divide.default", {{"self", ref("a")}, {"other", ref("b")}}, {2, 3}) ==
        Wholes{-4, 3, -3, 3, -4, 2});
  CHECK(p.wholes("aten.remainder.Tensor", {{"self", ref("a")}, {"other", ref("b")}}, {2, 3}) ==
        Wholes{1, -1, 2, 1, -1, 1});
  CHECK(p.wholes(
            "aten.div.Tensor_mode",
            {{"self", ref("a")}, {"other", ref("b")}, {"rounding_mode", {{"as_string", "trunc"}}}},
            {2, 3}) == Wholes{-3, 3, -2, 3, -3, 2});
  CHECK(p.floats("aten.div.Tensor", {{"self", ref("a")}, {"other", P::whole(2)}}, {2, 1}) ==
        Floats{-3.5, 3.5});
  CHECK(p.wholes("aten.pow.Tensor_Scalar", {{"self", ref("a")}, {"exponent", P::whole(3)}},
                 {2, 1}) == Wholes{-343, 343});
  CHECK(p.floats("aten.rsub.Scalar", {{"self", ref("f")}, {"other", P::real(0.5)}}, {2, 1}) ==
        Floats{7.5, -6.5});
  CHECK(p.truths("aten.le.Tensor", {{"self", ref("a")}, {"other", ref("b")}}, {2, 3}) ==
        Truths{1, 1, 1, 0, 0, 0});
  CHECK(p.wholes("aten.__and__.Scalar", {{"self", ref("a")}, {"other", P::whole(3)}}, {2, 1}) ==
        Wholes{1, 3});
  const Floats larger =
      p.floats("aten.maximum.default", {{"self", ref("h")}, {"other", ref("zero")}}, {2});
  CHECK((std::isnan(larger[0]) && larger[1] == 1));
}

TEST_CASE("a choice keeps what the mask says") {
  P p;
  p.with<char>("m", SmallProgram::kBool, {2}, {1, 0}).with_floats("f", {2}, {1.F, 2.F});
  CHECK(p.floats("aten.masked_fill.Scalar",
                 {{"self", ref("f")}, {"mask", ref("m")}, {"value", {{"as_float", "-Infinity"}}}},
                 {2}) == Floats{-INFINITY, 2});
  CHECK(p.floats("aten.where.ScalarOther",
                 {{"condition", ref("m")}, {"self", ref("f")}, {"other", P::real(0)}},
                 {2}) == Floats{1, 0});
  CHECK(p.floats("aten.clamp.default", {{"self", ref("f")}, {"max", P::real(1.5)}}, {2}) ==
        Floats{1, 1.5});
}

TEST_CASE("views see the elements in another order") {
  P p;
  p.with_wholes("a", {2, 3}, {0, 1, 2, 3, 4, 5});
  CHECK(p.wholes("aten.permute.default", {{"self", ref("a")}, {"dims", P::list({-1, 0})}},
                 {3, 2}) == Wholes{0, 3, 1, 4, 2, 5});
  CHECK(p.wholes("aten.view.default", {{"self", ref("a")}, {"size", P::list({3, -1})}}, {3, 2}) ==
        Wholes{0, 1, 2, 3, 4, 5});
  CHECK(p.wholes("aten.expand.default", {{"self", ref("a")}, {"size", P::list({2, -1, 3})}},
                 {2, 2, 3}) == Wholes{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(p.wholes("aten.slice.Tensor",
                 {{"self", ref("a")},
                  {"dim", P::whole(1)},
                  {"start", P::whole(-2)},
                  {"end", P::whole(std::numeric_limits<int64_t>::max())}},
                 {2, 2}) == Wholes{1, 2, 4, 5});
  CHECK(p.wholes("aten.slice.Tensor",
                 {{"self", ref("a")}, {"dim", P::whole(1)}, {"step", P::whole(2)}},
                 {2, 2}) == Wholes{0, 2, 3, 5});
  CHECK(p.wholes("aten.select.int",
                 {{"self", ref("a")}, {"dim", P::whole(1)}, {"index", P::whole(-1)}},
                 {2}) == Wholes{2, 5});
  CHECK(p.wholes("aten.unsqueeze.default", {{"self", ref("a")}, {"dim", P::whole(-1)}}, {2, 3, 1})
            .size() == 6);
  CHECK(p.wholes("aten.flip.default", {{"self", ref("a")}, {"dims", P::list({1})}}, {2, 3}) ==
        Wholes{2, 1, 0, 5, 4, 3});
}

TEST_CASE("tensors are joined, padded and repeated") {
  P p;
  p.with_wholes("a", {2, 1}, {1, 2}).with_wholes("b", {2, 2}, {3, 4, 5, 6});
  const json both = {{"as_tensors", json::array({{{"name", "a"}}, {{"name", "b"}}})}};
  CHECK(p.wholes("aten.cat.default", {{"tensors", both}, {"dim", P::whole(-1)}}, {2, 3}) ==
        Wholes{1, 3, 4, 2, 5, 6});
  CHECK(p.wholes("aten.repeat.default", {{"self", ref("a")}, {"repeats", P::list({2, 1, 2})}},
                 {2, 2, 2}) == Wholes{1, 1, 2, 2, 1, 1, 2, 2});
  CHECK(p.wholes("aten.pad.default",
                 {{"self", ref("b")}, {"pad", P::list({1, -1})}, {"value", P::real(-100)}},
                 {2, 2}) == Wholes{-100, 3, -100, 5});
  CHECK(p.wholes("aten.tril.default", {{"self", ref("b")}}, {2, 2}) == Wholes{3, 0, 5, 6});
  CHECK(p.wholes("aten.diff.default", {{"self", ref("b")}, {"prepend", ref("a")}}, {2, 2}) ==
        Wholes{2, 1, 3, 1});
}

TEST_CASE("elements are taken by their places") {
  P p;
  p.with_wholes("a", {2, 3}, {0, 1, 2, 3, 4, 5})
      .with_wholes("i", {2, 1}, {1, -2})
      .with_wholes("j", {2}, {2, 0})
      .with_wholes("r", {1, 2, 1, 2}, {0, 1, 2, 3});
  const auto indices = [](std::initializer_list<const char*> names) {
    json list = json::array();
    for (const char* name : names) list.push_back(name ? ref(name) : json{{"as_none", true}});
    return json{{"as_optional_tensors", list}};
  };
  CHECK(p.wholes("aten.index.Tensor", {{"self", ref("a")}, {"indices", indices({"i", "j"})}},
                 {2, 2}) == Wholes{5, 3, 2, 0});
  CHECK(p.wholes("aten.index.Tensor", {{"self", ref("a")}, {"indices", indices({nullptr, "j"})}},
                 {2, 2}) == Wholes{2, 0, 5, 3});
  p.with_wholes("zero", {1}, {0});
  CHECK(p.wholes("aten.index.Tensor",
                 {{"self", ref("r")}, {"indices", indices({"zero", nullptr, "zero"})}},
                 {1, 2, 2}) == Wholes{0, 1, 2, 3});
  p.with_wholes("k", {1, 2}, {2, 0});
  CHECK(p.wholes("aten.gather.default",
                 {{"self", ref("a")}, {"dim", P::whole(1)}, {"index", ref("k")}},
                 {1, 2}) == Wholes{2, 0});
}

TEST_CASE("sums and extremes are made over dimensions") {
  P p;
  p.with_wholes("a", {2, 3}, {0, 1, 2, 3, 4, 5})
      .with<char>("m", SmallProgram::kBool, {3}, {1, 0, 1})
      .with_floats("f", {2, 2}, {1.F, NAN, 3.F, 4.F});
  CHECK(p.wholes("aten.sum.dim_IntList",
                 {{"self", ref("a")}, {"dim", P::list({-1})}, {"keepdim", {{"as_bool", true}}}},
                 {2, 1}) == Wholes{3, 12});
  CHECK(p.wholes("aten.sum.default", {{"self", ref("m")}}, json::array()) == Wholes{2});
  CHECK(p.wholes("aten.cumsum.default", {{"self", ref("m")}, {"dim", P::whole(0)}}, {3}) ==
        Wholes{1, 1, 2});
  CHECK(p.floats("aten.mean.dim", {{"self", ref("f")}, {"dim", P::list({1})}}, {2})[1] == 3.5F);
  CHECK(std::isnan(p.floats("aten.max.default", {{"self", ref("f")}}, json::array())[0]));
  CHECK(p.truths("aten.all.dim", {{"self", ref("a")}, {"dim", P::whole(0)}}, {3}) ==
        Truths{0, 1, 1});
}

TEST_CASE("elements are ordered along a dimension: equal ones stay, and NaN is the largest") {
  P p;
  p.with_floats("f", {2, 4}, {1.F, NAN, -0.F, 0.F, 2.F, 2.F, -INFINITY, 2.F})
      .with_wholes("a", {3, 2}, {5, 1, 5, 2, -4, 1});
  const auto truth = [](bool value) { return json{{"as_bool", value}}; };
  CHECK(p.wholes("aten.argsort.default", {{"self", ref("f")}}, {2, 4}) ==
        Wholes{2, 3, 0, 1, 2, 0, 1, 3});
  CHECK(p.wholes("aten.argsort.stable",
                 {{"self", ref("f")}, {"stable", truth(true)}, {"descending", truth(true)}},
                 {2, 4}) == Wholes{1, 0, 2, 3, 0, 1, 3, 2});
  CHECK(p.wholes("aten.argsort.default", {{"self", ref("a")}, {"dim", P::whole(0)}}, {3, 2}) ==
        Wholes{2, 0, 0, 2, 1, 1});
  SmallProgram program;
  program.constant("f", SmallProgram::kF32, {1, 4}, bytes_of<float>({1.F, 7.F, NAN, 7.F}))
      .describe("values", SmallProgram::kF32, {1, 2})
      .describe("places", SmallProgram::kI64, {1, 2})
      .add("aten.topk.default", {{"self", ref("f")}, {"k", P::whole(2)}}, "values")
      .output("values")
      .output("places");
  program.graph()["nodes"].back()["outputs"].push_back(ref("places"));
  const FoldedGraph graph = folded(program);
  REQUIRE(graph.graph.outputs.size() == 2);
  const auto value_of = [&](size_t i) {
    return graph.constants.at(graph.graph.outputs[i].tensor.id);
  };
  const Floats values = elements_of<float>(value_of(0));
  CHECK((std::isnan(values[0]) && values[1] == 7));
  CHECK(elements_of<int64_t>(value_of(1)) == Wholes{2, 1});
}

TEST_CASE("matrices are multiplied, in batches too") {
  P p;
  p.with_floats("a", {2, 1, 2}, {1.F, 2.F, 3.F, 4.F})
      .with_floats("b", {2, 2}, {1.F, 0.F, 1.F, 1.F})
      .with_floats("v", {2}, {2.F, 3.F});
  CHECK(p.floats("aten.matmul.default", {{"self", ref("a")}, {"other", ref("b")}}, {2, 1, 2}) ==
        Floats{3, 2, 7, 4});
  CHECK(p.floats("aten.matmul.default", {{"self", ref("a")}, {"other", ref("v")}}, {2, 1}) ==
        Floats{8, 18});
  CHECK(p.floats("aten.matmul.default", {{"self", ref("v")}, {"other", ref("v")}}, json::array()) ==
        Floats{13});
}

TEST_CASE("a graph that contradicts its operands is refused with the node") {
  P p;
  p.with_wholes("a", {2, 3}, {0, 1, 2, 3, 4, 5}).with_wholes("j", {2}, {2, 0});
  CHECK_THROWS_WITH(p.floats("aten.neg.default", {{"self", ref("a")}}, {2, 3}),
                    Catch::Contains("m.pt2: node \"result\" (aten.neg.default) makes f32 (2, 3) "
                                    "according to the graph, and its operands give i64 (2, 3)"));
  CHECK_THROWS_WITH(p.wholes("aten.neg.default", {{"self", ref("a")}}, {3, 2}),
                    Catch::Contains("its operands give i64 (2, 3)"));
  CHECK_THROWS_WITH(p.wholes("aten.add.Tensor", {{"self", ref("a")}, {"other", ref("j")}}, {2, 3}),
                    Catch::Contains("do not fit each other"));
  CHECK_THROWS_WITH(
      p.wholes("aten.view.default", {{"self", ref("a")}, {"size", P::list({4, -1})}}, {4, 1}),
      Catch::Contains("has 6 elements"));
  CHECK_THROWS_WITH(
      p.wholes("aten.select.int",
               {{"self", ref("a")}, {"dim", P::whole(2)}, {"index", P::whole(0)}}, {2}),
      Catch::Contains("has the dimension 2 of 2"));
  CHECK_THROWS_WITH(
      p.wholes("aten.index_select.default",
               {{"self", ref("a")}, {"dim", P::whole(0)}, {"index", ref("j")}}, {2, 3}),
      Catch::Contains("takes the element 2 of 2"));
  CHECK_THROWS_WITH(
      p.wholes("aten.floor_divide.Scalar", {{"self", ref("a")}, {"other", P::whole(0)}}, {2, 3}),
      Catch::Contains("divides by zero"));
  CHECK_THROWS_WITH(p.floats("aten.zeros_like.default", {{"self", P::whole(3)}}, json::array()),
                    Catch::Contains("expected a tensor"));
}

}  // namespace
}  // namespace dstrain::exported
