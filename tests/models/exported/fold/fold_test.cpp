#include "models/exported/fold/fold.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "models/exported/fold/input_function.h"
#include "runtime/core/error.h"
#include "tests/models/exported/fold/constant_program.h"

namespace dstrain::exported {
namespace {

using json = nlohmann::json;
using Truths = std::vector<char>;

// y = where(arange(3)[None, :] <= arange(3)[:, None], x, z), in which z is a buffer of the state.
SmallProgram causal_program() {
  SmallProgram program;
  program.input("x", SmallProgram::kF32, {3, 3})
      .buffer("b_z", "z", SmallProgram::kF32, json::array(), bytes_of<float>({-1}))
      .describe("arange", SmallProgram::kI64, {3})
      .describe("row", SmallProgram::kI64, {1, 3})
      .describe("column", SmallProgram::kI64, {3, 1})
      .describe("mask", SmallProgram::kBool, {3, 3})
      .describe("neg", SmallProgram::kF32, json::array())
      .describe("y", SmallProgram::kF32, {3, 3})
      .add("aten.arange.default", {{"end", {{"as_int", 3}}}}, "arange")
      .add("aten.unsqueeze.default", {{"self", ref("arange")}, {"dim", {{"as_int", 0}}}}, "row")
      .add("aten.unsqueeze.default", {{"self", ref("arange")}, {"dim", {{"as_int", 1}}}}, "column")
      .add("aten.le.Tensor", {{"self", ref("row")}, {"other", ref("column")}}, "mask")
      .add("aten.neg.default", {{"self", ref("b_z")}}, "neg")
      .add("aten.where.self",
           {{"condition", ref("mask")}, {"self", ref("x")}, {"other", ref("neg")}}, "y")
      .output("y");
  return program;
}

// The names of the nodes of a graph.
std::vector<std::string> names_of(const FoldedGraph& folded) {
  std::vector<std::string> names;
  for (const Node& node : folded.graph.nodes) names.push_back(node.name);
  return names;
}

// The values that a folded graph has, by the names of the tensors.
std::map<std::string, HostTensor> constants_of(const FoldedGraph& folded) {
  std::map<std::string, HostTensor> constants;
  for (const auto& [id, value] : folded.constants)
    constants.emplace(folded.graph.tensors[static_cast<size_t>(id)].name, value);
  return constants;
}

using Names = std::vector<std::string>;

TEST_CASE("what depends on no input and no parameter becomes values") {
  const FoldedGraph graph = folded(causal_program());
  CHECK(names_of(graph) == Names{"y"});
  const auto constants = constants_of(graph);
  REQUIRE(constants.size() == 2);  // what no node takes any more is not kept
  CHECK(elements_of<char>(constants.at("mask")) == Truths{1, 0, 0, 1, 1, 0, 1, 1, 1});
  CHECK(elements_of<float>(constants.at("neg")) == std::vector<float>{1});
  CHECK(graph.left.empty());
}

TEST_CASE("inputs whose elements are known are values") {
  SmallProgram program;
  program.input("x", SmallProgram::kI64, {2, 3})
      .describe("sum", SmallProgram::kI64, json::array())
      .add("aten.sum.default", {{"self", ref("x")}}, "sum")
      .output("sum");
  FoldOptions options;
  CHECK(names_of(folded(program, options)) == Names{"sum"});
  options.inputs["x"] = {1, 2, 3, 4, 5, 6};
  const FoldedGraph graph = folded(program, options);
  CHECK(graph.graph.nodes.empty());
  CHECK(elements_of<int64_t>(constants_of(graph).at("sum")) == std::vector<int64_t>{21});
}

TEST_CASE("the host computes a number that follows from inputs") {
  SmallProgram program;
  program.input("x", SmallProgram::kI64, {2, 3})
      .parameter("p_w", "w", SmallProgram::kF32, {1}, bytes_of<float>({2}))
      .describe("counts", SmallProgram::kBool, {2, 3})
      .describe("count", SmallProgram::kI64, json::array())
      .describe("scaled", SmallProgram::kF32, {1})
      .add("aten.ne.Scalar", {{"self", ref("x")}, {"other", {{"as_int", -100}}}}, "counts")
      .add("aten.sum.default", {{"self", ref("counts")}}, "count")
      .add("aten.mul.Tensor", {{"self", ref("p_w")}, {"other", ref("count")}}, "scaled")
      .output("count")
      .output("scaled");
  const FoldedGraph graph = folded(program);
  std::vector<int32_t> ids{1, -100, 3, 4, 5, -100};
  const std::vector<InputTensor> batch{{"x", InputRole::labels, {ids.data(), {2, 3}, DType::i32}}};
  const TensorRef count = graph.graph.outputs[0].tensor;
  const InputFunction function(graph, count, "");
  CHECK(function.inputs() == std::set<std::string>{"x"});
  CHECK(function.value(batch) == 4);
  // Where the graph has each token at its own place, the first one has no target, and the last one is none.
  CHECK(InputFunction(graph, count, "x").value(batch) == 3);
  try {
    const InputFunction refused(graph, graph.graph.outputs[1].tensor, "");
    CHECK(false);
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Catch::Contains("it depends on w, which training changes"));
  }
}

TEST_CASE("buffers of the state that a run gives other values are no constants") {
  FoldOptions options;
  options.persistent_buffers = false;
  const FoldedGraph graph = folded(causal_program(), options);
  CHECK(names_of(graph) == Names{"neg", "y"});
  CHECK(constants_of(graph).size() == 1);
}

TEST_CASE("buffers that a step changes are no constants") {
  SmallProgram program = causal_program();
  program.mutation("neg", "z");
  CHECK(names_of(folded(program)) == Names{"neg", "y"});
}

TEST_CASE("buffers without values in the archive are no constants") {
  SmallProgram program = causal_program();
  program.storages[0].second.clear();
  const FoldedGraph graph = folded(program);
  CHECK(names_of(graph) == Names{"neg", "y"});
  CHECK(graph.left.empty());  // a run takes them from elsewhere
  SmallProgram table;
  table.buffer("b_t", "t", SmallProgram::kF32, {2}, "", false)
      .buffer("b_u", "unused", SmallProgram::kF32, {2}, "", false)
      .describe("exp", SmallProgram::kF32, {2})
      .add("aten.exp.default", {{"self", ref("b_t")}}, "exp")
      .output("exp");
  const FoldedGraph left = folded(table);
  CHECK(names_of(left) == Names{"exp"});
  REQUIRE(left.left.size() == 1);
  CHECK(left.left[0].name == "t");
  CHECK_THAT(left.left[0].reason, Catch::Contains("exported on the meta device"));
}

TEST_CASE("tensors that only have the sizes of an input are constants") {
  SmallProgram program;
  program.input("x", SmallProgram::kF32, {2, 2})
      .describe("exp", SmallProgram::kF32, {2, 2})
      .describe("ones", SmallProgram::kBool, {3})
      .describe("zeros", SmallProgram::kF32, {2, 2})
      .describe("randn", SmallProgram::kF32, {2, 2})
      .add("aten.exp.default", {{"self", ref("x")}}, "exp")
      .add(
          "aten.new_ones.default",
          {{"self", ref("exp")}, {"size", {{"as_ints", {3}}}}, {"dtype", {{"as_scalar_type", 12}}}},
          "ones")
      .add("aten.zeros_like.default", {{"self", ref("exp")}}, "zeros")
      .add("aten.randn_like.default", {{"self", ref("zeros")}}, "randn")
      .output("ones")
      .output("zeros")
      .output("randn");
  const FoldedGraph graph = folded(program);
  CHECK(names_of(graph) == Names{"randn"});  // exp has no use left; what is random is no constant
  CHECK(elements_of<char>(constants_of(graph).at("ones")) == Truths{1, 1, 1});
  CHECK(constants_of(graph).at("zeros").strides == Sizes{0, 0});
}

TEST_CASE("operators that give a tensor back as it is are left out") {
  SmallProgram program;
  program.input("x", SmallProgram::kF32, {2, 3})
      .constant("none", SmallProgram::kF32, {0}, "")
      .describe("clone", SmallProgram::kF32, {2, 3})
      .describe("cat", SmallProgram::kF32, {2, 3})
      .describe("slice", SmallProgram::kF32, {2, 3})
      .describe("part", SmallProgram::kF32, {2, 2})
      .describe("neg", SmallProgram::kF32, {2, 3})
      .add("aten.clone.default", {{"self", ref("x")}}, "clone")
      .add("aten.cat.default",
           {{"tensors", {{"as_tensors", json::array({{{"name", "none"}}, {{"name", "clone"}}})}}}},
           "cat")
      .add("aten.slice.Tensor", {{"self", ref("cat")}, {"dim", {{"as_int", 1}}}}, "slice")
      .add("aten.slice.Tensor",
           {{"self", ref("slice")}, {"dim", {{"as_int", 1}}}, {"end", {{"as_int", 2}}}}, "part")
      .add("aten.neg.default", {{"self", ref("slice")}}, "neg")
      .output("part")
      .output("neg")
      .output("cat");
  const FoldedGraph graph = folded(program);
  CHECK(names_of(graph) == Names{"part", "neg"});
  const TensorRef x = graph.graph.inputs[0].tensor;
  CHECK(graph.graph.nodes[0].tensor("self") == x);
  CHECK(graph.graph.nodes[1].tensor("self") == x);
  CHECK(graph.graph.outputs[2].tensor == x);
  CHECK(graph.constants.empty());
}

TEST_CASE("tensors without elements are constants, whatever they are computed from") {
  SmallProgram program;
  program.input("x", SmallProgram::kF32, {2, 3})
      .describe("none", SmallProgram::kF32, {2, 0})
      .describe("own", SmallProgram::kF32, {2, 0, 4})
      .describe("sum", SmallProgram::kF32, {2})
      .describe("mean", SmallProgram::kF32, json::array())
      .describe("part", SmallProgram::kF32, {2, 1})
      .describe("cat", SmallProgram::kF32, {2, 1})
      .describe("neg", SmallProgram::kF32, {2, 1})
      .add("aten.slice.Tensor",
           {{"self", ref("x")}, {"dim", {{"as_int", 1}}}, {"end", {{"as_int", 0}}}}, "none")
      .add("own.op.default", {{"a", ref("none")}}, "own")
      .add("aten.sum.dim_IntList", {{"self", ref("none")}, {"dim", {{"as_ints", {1}}}}}, "sum")
      .add("aten.mean.default", {{"self", ref("own")}}, "mean")
      .add("aten.slice.Tensor",
           {{"self", ref("x")}, {"dim", {{"as_int", 1}}}, {"end", {{"as_int", 1}}}}, "part")
      .add("aten.cat.default",
           {{"tensors", {{"as_tensors", json::array({{{"name", "none"}}, {{"name", "part"}}})}}},
            {"dim", {{"as_int", 1}}}},
           "cat")
      .add("aten.neg.default", {{"self", ref("cat")}}, "neg")
      .output("own")
      .output("sum")
      .output("mean")
      .output("neg");
  const FoldedGraph graph = folded(program);
  CHECK(names_of(graph) == Names{"part", "neg"});
  CHECK(graph.graph.nodes[1].tensor("self") == graph.graph.nodes[0].outputs[0]);
  const auto constants = constants_of(graph);
  CHECK(constants.at("own").sizes == Sizes{2, 0, 4});
  CHECK(elements_of<float>(constants.at("sum")) == std::vector<float>{0, 0});
  CHECK(std::isnan(elements_of<float>(constants.at("mean"))[0]));
  CHECK_FALSE(constants.contains("none"));
}

TEST_CASE("PyTorch's checks and nodes without use are left out, unknown operators stay") {
  SmallProgram program = causal_program();
  program.describe("unused", SmallProgram::kF32, {3, 3})
      .describe("own", SmallProgram::kF32, {3, 3})
      .add("aten.exp.default", {{"self", ref("x")}}, "unused")
      .add("own.op.default", {{"a", ref("y")}}, "own")
      .output("own");
  program.graph()["nodes"].push_back({{"target", "torch.ops.aten._assert_tensor_metadata.default"},
                                      {"inputs", json::array({{{"name", "a"}, {"arg", ref("x")}}})},
                                      {"outputs", json::array()},
                                      {"metadata", json::object()}});
  CHECK(names_of(folded(program)) == Names{"y", "own"});
}

TEST_CASE("nodes whose values are over the limits stay") {
  FoldOptions options;
  options.limits.bytes = 60;
  FoldedGraph graph = folded(causal_program(), options);
  CHECK(names_of(graph) == Names{"y"});
  options.limits.bytes = 32;
  graph = folded(causal_program(), options);
  CHECK(names_of(graph) == Names{"mask", "y"});
  REQUIRE(!graph.left.empty());
  CHECK_THAT(graph.left[0].reason, Catch::Contains("of the 32 for constants are left"));
  options.limits = {};
  options.limits.steps = 5;
  graph = folded(causal_program(), options);
  CHECK_THAT(graph.left.at(0).reason,
             Catch::Contains("its value takes 9 steps, and 2 of the 5 for constants are left"));
}

TEST_CASE("a value is freed when nothing takes it any more") {
  SmallProgram program;
  program.describe("t0", SmallProgram::kI64, {1000})
      .add("aten.arange.default", {{"end", {{"as_int", 1000}}}}, "t0");
  for (int i = 1; i < 20; ++i)
    program.describe(fmt::format("t{}", i), SmallProgram::kI64, {1000})
        .add("aten.neg.default", {{"self", SmallProgram::ref(fmt::format("t{}", i - 1))}},
             fmt::format("t{}", i));
  program.output("t19");
  FoldOptions options;
  options.limits.bytes = 16'000;  // two of twenty
  const FoldedGraph graph = folded(program, options);
  CHECK(graph.left.empty());
  CHECK(elements_of<int64_t>(graph.constants.begin()->second)[999] == -999);
}

TEST_CASE("values with more elements than any memory are not computed") {
  SmallProgram program;
  const int64_t large = int64_t{1} << 30;
  program.describe("a", SmallProgram::kF32, {large, 1})
      .describe("b", SmallProgram::kF32, {1, large})
      .describe("c", SmallProgram::kF32, {large, large / 4})
      .describe("sum_1", SmallProgram::kF32, json::array())
      .add("aten.zeros.default", {{"size", {{"as_ints", {large, 1}}}}}, "a")
      .add("aten.expand.default", {{"self", ref("a")}, {"size", {{"as_ints", {large, large / 4}}}}},
           "c")
      .add("aten.sum.default", {{"self", ref("c")}}, "sum_1")
      .output("sum_1");
  const FoldedGraph graph = folded(program);
  CHECK(names_of(graph) == Names{"sum_1"});
  CHECK_THAT(graph.left.at(0).reason, Catch::Contains("steps"));
  CHECK(constants_of(graph).at("c").strides == Sizes{0, 0});
}

}  // namespace
}  // namespace dstrain::exported
