#include "models/exported/read/read_graph.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "models/exported/graph/op_schemas.h"
#include "runtime/core/error.h"
#include "tests/models/exported/small_program.h"

namespace dstrain::exported {
namespace {

using json = nlohmann::json;

// y = relu(linear(x, w)).sum(), with a symbolic batch.
SmallProgram linear_program() {
  const char* batch = "Symbol('s7', positive=True, integer=True)";
  SmallProgram program;
  program.parameter("p_w", "net.0.weight", SmallProgram::kF32, {2, 3}, std::string(24, '\0'))
      .input("x", SmallProgram::kF32, {batch, 3})
      .describe("linear", SmallProgram::kF32, {batch, 2})
      .describe("relu", SmallProgram::kF32, {batch, 2})
      .describe("sum_1", SmallProgram::kF32, json::array())
      .add("aten.linear.default",
           {{"input", SmallProgram::ref("x")}, {"weight", SmallProgram::ref("p_w")}}, "linear")
      .add("aten.relu.default", {{"self", SmallProgram::ref("linear")}}, "relu")
      .add("aten.sum.default", {{"self", SmallProgram::ref("relu")}}, "sum_1")
      .output("sum_1");
  program.node(0)["metadata"] = {
      {"nn_module_stack",
       "L__self__,,models.MLP;L__self__net,net,torch.nn.Sequential;L__self__net.0,net.0@1,torch.nn."
       "Linear"},
      {"stack_trace",
       "File \"project/models.py\", line 45, in forward\n    return s.net(x).sum()\n"
       "  File \"site-packages/torch/nn/linear.py\", line 134, in forward\n    return "
       "F.linear(x)"}};
  return program;
}

Graph graph_of(const SmallProgram& program) {
  return read_graph(program.text(), "m.pt2");
}

// Returns the message with which a program is refused; empty if it is not.
std::string refusal_of(const SmallProgram& program) {
  try {
    graph_of(program);
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Catch::StartsWith("m.pt2: "));
    return e.what();
  }
  return {};
}

TEST_CASE("a program is read with its nodes, inputs and outputs") {
  const Graph graph = graph_of(linear_program());
  REQUIRE(graph.inputs.size() == 2);
  CHECK(graph.inputs[0].kind == InputKind::parameter);
  CHECK(graph.inputs[0].name == "net.0.weight");
  CHECK(graph.inputs[1].kind == InputKind::user);
  CHECK(graph.inputs[1].name == "x");
  CHECK(to_string(graph.tensor(graph.inputs[1].tensor).sizes) == "(s7, 3)");
  REQUIRE(graph.nodes.size() == 3);
  const Node& linear = graph.nodes[0];
  CHECK(linear.target == "aten.linear.default");
  CHECK(linear.schema == find_schema("aten.linear.default"));
  CHECK(linear.tensor("weight") == graph.inputs[0].tensor);
  CHECK_FALSE(linear.tensor("bias"));  // the default
  CHECK_FALSE(linear.has("bias"));
  CHECK(linear.module_path == "net.0");
  CHECK(linear.module_type == "torch.nn.Linear");
  CHECK(linear.source.file == "project/models.py");
  CHECK(linear.source.line == 45);
  CHECK(linear.source.text == "return s.net(x).sum()");
  CHECK(describe(linear) ==
        "node \"linear\" (aten.linear.default, module \"net.0\", project/models.py:45)");
  CHECK(graph.nodes[1].tensor("self") == linear.outputs.at(0));
  CHECK_THROWS_AS(linear.whole("weight"), InternalError);
  CHECK_THROWS_AS(linear.whole("none"), InternalError);
  REQUIRE(graph.outputs.size() == 1);
  CHECK(graph.outputs[0].name == "sum_1");
  CHECK(graph.torch_version == "2.15.0");
}

TEST_CASE("arguments have the kinds of an archive") {
  SmallProgram program = linear_program();
  program.graph()["sym_int_values"]["size_1"] = {{"as_expr", {{"expr_str", "Symbol('s7')"}}}};
  program.describe("like", SmallProgram::kF32, {2})
      .add("aten.unknown.default",
           {{"a", {{"as_none", true}}},
            {"b", {{"as_ints", {1, -2}}}},
            {"c", {{"as_float", "-Infinity"}}},
            {"d", {{"as_bool", true}}},
            {"e", {{"as_string", "sum"}}},
            {"f", {{"as_scalar_type", 13}}},
            {"g", {{"as_sym_ints", {{{"as_name", "size_1"}}, {{"as_int", 4}}}}}},
            {"h", {{"as_optional_tensors", {{{"as_none", true}}, SmallProgram::ref("relu")}}}},
            {"i", {{"as_memory_format", 2}}},
            {"device", {{"as_device", {{"type", "cpu"}, {"index", nullptr}}}}},
            {"j", {{"as_floats", {0.5, 2}}}}},
           "like");
  const Graph graph = graph_of(program);
  const Node& node = graph.nodes.back();
  CHECK(node.schema == nullptr);
  CHECK_FALSE(node.has("a"));
  CHECK(node.wholes("b") == std::vector<int64_t>{1, -2});
  CHECK(node.real("c") == -INFINITY);
  CHECK(node.flag("d"));
  CHECK(node.text("e") == "sum");
  CHECK(node.type("f") == ScalarType::bf16);
  CHECK(to_string(std::get<std::vector<Size>>(*node.find("g"))) == "(s7, 4)");
  CHECK(node.tensors("h").size() == 2);
  CHECK_FALSE(node.tensors("h")[0]);
  CHECK(std::get<MemoryFormat>(*node.find("i")) == MemoryFormat::channels_last);
  CHECK(node.find("device") == nullptr);
  CHECK(std::get<std::vector<double>>(*node.find("j")) == std::vector<double>{0.5, 2});
}

TEST_CASE("outputs have their paths in what the module returns") {
  SmallProgram program = linear_program();
  program.output("linear").output("relu");
  const char* leaf = R"({"type": null, "context": null, "children_spec": []})";
  const auto with_spec = [&](const std::string& type, const std::string& context) {
    program.model["graph_module"]["module_call_graph"] = json::array(
        {{{"fqn", ""},
          {"signature",
           {{"out_spec",
             fmt::format(
                 R"([1, {{"type": "{}", "context": {}, "children_spec": [{}, {{"type": "builtins.tuple", "context": "null", "children_spec": [{}, {}]}}]}}])",
                 type, json(context).dump(), leaf, leaf, leaf)}}}}});
    std::vector<std::string> names;
    for (const GraphOutput& output : graph_of(program).outputs) names.push_back(output.name);
    return names;
  };
  using Paths = std::vector<std::string>;
  CHECK(with_spec("builtins.dict", R"(["loss", "more"])") == Paths{"loss", "more.0", "more.1"});
  CHECK(with_spec("builtins.tuple", "null") == Paths{"0", "1.0", "1.1"});
  program.model["graph_module"]["treespec_namedtuple_fields"]["a.B"] = {
      {"field_names", {"x", "y"}}};
  CHECK(with_spec("collections.namedtuple", "a.B") == Paths{"x", "y.0", "y.1"});
}

TEST_CASE("nodes that compute sizes alone are left out") {
  SmallProgram program = linear_program();
  program.graph()["sym_int_values"]["size_1"] = {{"as_expr", {{"expr_str", "Symbol('s7')"}}}};
  json node = program.node(1);
  node["target"] = "torch.ops.aten.sym_size.int";
  node["outputs"][0] = {{"as_sym_int", {{"as_name", "size_1"}}}};
  program.graph()["nodes"].insert(program.graph()["nodes"].begin() + 1, node);
  CHECK(graph_of(program).nodes.size() == 3);
}

TEST_CASE("a number that cannot be read is refused only where it is taken") {
  SmallProgram program = linear_program();
  program.graph()["sym_int_values"]["mod"] = {
      {"as_expr", {{"expr_str", "Mod(Symbol('s7'), Integer(2))"}}}};
  CHECK(refusal_of(program).empty());
  program.node(2)["inputs"].push_back(
      {{"name", "dtype"}, {"arg", {{"as_sym_int", {{"as_name", "mod"}}}}}});
  CHECK_THAT(refusal_of(program),
             Catch::Contains("takes the number \"mod\", which cannot be read"));
  CHECK_THAT(refusal_of(program), Catch::Contains("has the function Mod"));
}

TEST_CASE("a program of another version of the schema is refused by its version") {
  SmallProgram program = linear_program();
  program.model["schema_version"] = {{"major", 9}, {"minor", 1}};
  CHECK_THAT(refusal_of(program),
             Catch::Contains("schema_version is 9.1, written by PyTorch 2.15.0, expected 8.x"));
}

TEST_CASE(
    "a program that changes tensors in place, or has graphs inside, is refused with what to type") {
  SmallProgram program = linear_program();
  program.node(0)["target"] = "torch.ops.aten.linear_.default";
  program.node(1)["target"] = "torch.ops.aten.relu_.default";
  const std::string refusal = refusal_of(program);
  CHECK_THAT(refusal,
             Catch::Contains("2 nodes change a tensor in place, the first is node \"linear\" "
                             "(aten.linear_.default, module \"net.0\", project/models.py:45)"));
  CHECK_THAT(refusal, Catch::Contains(".run_decompositions({})"));
  program = linear_program();
  program.node(1)["target"] = "torch.ops.aten.__iand__.Tensor";
  CHECK_THAT(refusal_of(program), Catch::Contains("1 nodes change a tensor in place"));
  program = linear_program();
  program.node(1)["target"] = "torch.ops.higher_order.cond";
  CHECK_THAT(refusal_of(program), Catch::Contains("have graphs inside"));
}

TEST_CASE("a program whose nodes are out of order, or in a circle, is refused") {
  SmallProgram program = linear_program();
  std::swap(program.node(0), program.node(1));
  CHECK_THAT(refusal_of(program),
             Catch::Contains("node \"relu\" (aten.relu.default) takes the tensor \"linear\", which "
                             "no node before it makes"));
  program = linear_program();
  program.node(1)["inputs"][0]["arg"] = SmallProgram::ref("relu");
  CHECK_THAT(refusal_of(program),
             Catch::Contains("takes the tensor \"relu\", which no node before it makes"));
  program = linear_program();
  program.node(1)["outputs"][0] = SmallProgram::ref("linear");
  CHECK_THAT(refusal_of(program),
             Catch::Contains("makes the tensor \"linear\", which exists already"));
  program = linear_program();
  program.output("linear").describe("other", SmallProgram::kF32, {1}).output("other");
  CHECK_THAT(refusal_of(program), Catch::Contains("the tensor \"other\", which no node makes"));
}

TEST_CASE("a program with names that nothing has is refused") {
  SmallProgram program = linear_program();
  program.node(1)["inputs"][0]["arg"] = SmallProgram::ref("none");
  CHECK_THAT(refusal_of(program),
             Catch::Contains("graph_module.graph.nodes[1].inputs[0].arg.as_tensor.name names the "
                             "tensor \"none\", which the graph does not describe"));
  program = linear_program();
  program.node(2)["inputs"].push_back(
      {{"name", "dtype"}, {"arg", {{"as_sym_int", {{"as_name", "none"}}}}}});
  CHECK_THAT(refusal_of(program), Catch::Contains("names the number \"none\""));
  program = linear_program();
  program.node(1)["inputs"][0]["name"] = "other";
  CHECK_THAT(
      refusal_of(program),
      Catch::Contains(
          "is the argument \"other\", which node \"relu\" (aten.relu.default) does not have"));
  program = linear_program();
  program.node(1)["inputs"].push_back(program.node(1)["inputs"][0]);
  CHECK_THAT(refusal_of(program),
             Catch::Contains("gives \"self\" of node \"relu\" (aten.relu.default) twice"));
  program = linear_program();
  program.node(1)["inputs"].clear();
  CHECK_THAT(refusal_of(program), Catch::Contains("lacks the argument \"self\" of node \"relu\""));
  program = linear_program();
  program.mutation("relu", "net.0.weight");
  CHECK_THAT(refusal_of(program), Catch::Contains("changes \"net.0.weight\", which is no buffer"));
  for (const char* member : {"nodes", "tensor_values", "sym_int_values"}) {
    program = linear_program();
    program.graph().erase(member);
    CHECK_THAT(refusal_of(program),
               Catch::Contains(fmt::format("lacks the member \"{}\"", member)));
  }
}

TEST_CASE("a program with values of another type than their place has is refused") {
  SmallProgram program = linear_program();
  program.node(1)["inputs"][0]["arg"] = {{"as_string", "a"}};
  CHECK_THAT(refusal_of(program), Catch::Contains("gives a text for \"self\" of node \"relu\""));
  program.node(1)["inputs"][0]["arg"] = {{"as_graph", json::object()}};
  CHECK_THAT(refusal_of(program), Catch::Contains("is an argument of the kind \"as_graph\""));
  program.node(1)["inputs"][0]["arg"] = {{"as_int", 1}, {"as_float", 2}};
  CHECK_THAT(refusal_of(program), Catch::Contains("has several members"));
  program.node(1)["inputs"][0]["arg"] = {{"as_int", 1.5}};
  CHECK_THAT(refusal_of(program), Catch::Contains("is a fraction, expected a whole number"));
  program.node(1)["inputs"][0]["arg"] = {{"as_int", 9223372036854775808u}};
  CHECK_THAT(refusal_of(program), Catch::Contains("does not fit into 64 bits"));
  program.node(1)["inputs"] = json::object();
  CHECK_THAT(refusal_of(program), Catch::Contains("is an object, expected a list"));
  program = linear_program();
  program.tensor("relu")["dtype"] = 9;
  CHECK_THAT(refusal_of(program),
             Catch::Contains("tensor_values.relu.dtype is the element type 9"));
  program = linear_program();
  program.tensor("relu")["layout"] = 1;
  CHECK_THAT(refusal_of(program), Catch::Contains("layout is 1, expected 7"));
}

TEST_CASE("a program with impossible sizes is refused") {
  const auto with = [](const json& sizes) {
    SmallProgram program = linear_program();
    program.tensor("relu") = SmallProgram::meta(SmallProgram::kF32, json::array());
    for (const json& size : sizes) {
      program.tensor("relu")["sizes"].push_back({{"as_int", size}});
      program.tensor("relu")["strides"].push_back({{"as_int", 1}});
    }
    return refusal_of(program);
  };
  CHECK(with({2, 0}).empty());
  CHECK_THAT(with({2, -1}), Catch::Contains("has the size -1"));
  CHECK_THAT(with({1, 1, 1, 1, 1, 1, 1, 1, 1}),
             Catch::Contains("has 9 dimensions, expected at most 8"));
  CHECK_THAT(with({int64_t{1} << 31, int64_t{1} << 31}), Catch::Contains("that overflow"));
  CHECK_THAT(with({0, int64_t{1} << 62}), Catch::Contains("that overflow"));
  SmallProgram program = linear_program();
  program.tensor("relu")["sizes"][0] = {
      {"as_expr", {{"expr_str", "FloorDiv(Symbol('s7'), Integer(2))"}}}};
  CHECK_THAT(
      refusal_of(program),
      Catch::Contains("tensor_values.relu.sizes[0].as_expr.expr_str cannot be read: the size"));
  CHECK_THAT(refusal_of(program), Catch::Contains("has the function FloorDiv"));
}

TEST_CASE("a program that is not JSON, too deep or too long is refused") {
  const std::string text = linear_program().text();
  for (size_t n = 0; n < text.size(); n += 41)
    CHECK_THROWS_AS(read_graph(text.substr(0, n), "m.pt2"), UserError);
  CHECK_THROWS_WITH(read_graph(text + std::string(1, '\0'), "m.pt2"),
                    Catch::Contains("has a zero at byte"));
  CHECK_THROWS_WITH(read_graph(std::string(100'000, '['), "m.pt2"),
                    Catch::Contains("is nested more than 64 deep"));
  SmallProgram program = linear_program();
  program.graph()["nodes"] = json(json::array_t(1'000'000));
  CHECK_THAT(refusal_of(program),
             Catch::Contains("nodes has 1000000 nodes, expected at most 250000"));
}

TEST_CASE("a graph that gives back gradients, or is given numbers, is refused") {
  SmallProgram program = linear_program();
  program.signature()["output_specs"].push_back(
      {{"gradient_to_parameter",
        {{"arg", {{"name", "relu"}}}, {"parameter_name", "net.0.weight"}}}});
  CHECK_THAT(refusal_of(program), Catch::Contains("of the kind \"gradient_to_parameter\""));
  program = linear_program();
  program.signature()["input_specs"].push_back(
      {{"user_input", {{"arg", {{"as_sym_int", {{"as_name", "n"}}}}}}}});
  CHECK_THAT(refusal_of(program), Catch::Contains("is a number that the graph is given"));
  program = linear_program();
  program.signature()["input_specs"].push_back({{"custom_obj", {{"arg", {{"name", "n"}}}}}});
  CHECK_THAT(refusal_of(program), Catch::Contains("of the kind \"custom_obj\""));
  program = linear_program();
  program.signature()["input_specs"].push_back({{"user_input", {{"arg", {{"as_none", true}}}}}});
  CHECK(graph_of(program).inputs.size() == 2);
}

}  // namespace
}  // namespace dstrain::exported
