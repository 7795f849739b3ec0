#include "models/exported/graph/solve_sizes.h"

#include <catch2/catch.hpp>

#include "models/exported/read/read_graph.h"
#include "runtime/core/error.h"
#include "tests/models/exported/small_program.h"

namespace dstrain::exported {
namespace {

using json = nlohmann::json;

// x (b, 3, 8*t) and y (b*t) become z (b*t + 2, 3) by the node `view`.
SmallProgram sized_program() {
  const std::string b = "Symbol('b', positive=True, integer=True)",
                    t = "Symbol('t', positive=True, integer=True)",
                    product = "Mul(" + b + ", " + t + ")";
  SmallProgram program;
  program.input("x", SmallProgram::kF32, {b, 3, "Mul(Integer(8), " + t + ")"})
      .input("y", SmallProgram::kI64, json::array({product}))
      .describe("z", SmallProgram::kF32, {"Add(" + product + ", Integer(2))", 3});
  program.graph()["sym_int_values"]["n"] = {
      {"as_expr", {{"expr_str", "Add(" + product + ", Integer(2))"}}}};
  program
      .add("aten.view.default",
           {{"self", SmallProgram::ref("x")},
            {"size", {{"as_sym_ints", json::array({{{"as_name", "n"}}, {{"as_int", 3}}})}}}},
           "z")
      .output("z");
  program.model["range_constraints"] = {{"b", {{"min_val", 2}, {"max_val", 8}}},
                                        {"t", {{"min_val", 3}, {"max_val", nullptr}}}};
  return program;
}

Graph sized_graph() {
  return read_graph(sized_program().text(), "m.pt2");
}

TEST_CASE("symbols are solved from the sizes of the inputs, and every size follows") {
  const Graph graph = sized_graph();
  const SymbolValues values = solve_symbols(graph, {{"y", {20}}, {"x", {4, 3, 40}}});
  CHECK(values == SymbolValues{{"b", 4}, {"t", 5}});
  const Graph sized = with_sizes(graph, values);
  CHECK(to_string(sized.tensor(sized.inputs[0].tensor).sizes) == "(4, 3, 40)");
  CHECK(to_string(sized.tensor(sized.outputs[0].tensor).sizes) == "(22, 3)");
  CHECK(sized.nodes[0].wholes("size") == std::vector<int64_t>{22, 3});
}

TEST_CASE("a symbol may be 1 where its range begins at 2") {
  CHECK(solve_symbols(sized_graph(), {{"x", {1, 3, 40}}, {"y", {5}}}).at("b") == 1);
}

TEST_CASE("sizes that an exported model cannot have are refused with both") {
  const Graph graph = sized_graph();
  const auto with = [&](const std::vector<int64_t>& x, const std::vector<int64_t>& y) {
    CAPTURE(x, y);
    CHECK_THROWS_AS(solve_symbols(graph, {{"x", x}, {"y", y}}), UserError);
  };
  CHECK_THROWS_WITH(
      solve_symbols(graph, {{"x", {4, 2, 40}}, {"y", {20}}}),
      Catch::Contains(
          "the input \"x\" has sizes (4, 2, 40), and the model was exported with (b, 3, 8*t)"));
  with({4, 3}, {20});
  with({4, 3, 41}, {20});
  with({4, 3, 40}, {21});
  CHECK_THROWS_WITH(solve_symbols(graph, {{"x", {9, 3, 40}}, {"y", {45}}}),
                    Catch::Contains("the size b is 9, and the model was exported for 2 to 8"));
  CHECK_THROWS_WITH(
      solve_symbols(graph, {{"x", {4, 3, 8}}, {"y", {4}}}),
      Catch::Contains("the size t is 1, and the model was exported for 3 to any number"));
  with({0, 3, 40}, {0});
  CHECK_THROWS_AS(solve_symbols(graph, {{"x", {4, 3, 40}}}), InternalError);
}

TEST_CASE("symbols that the inputs do not tell are refused") {
  SmallProgram program = sized_program();
  program.tensor("x")["sizes"][0] = {{"as_int", 4}};
  program.tensor("x")["sizes"][2] = {{"as_int", 40}};
  CHECK_THROWS_WITH(
      solve_symbols(read_graph(program.text(), "m.pt2"), {{"x", {4, 3, 40}}, {"y", {20}}}),
      Catch::Contains("the size b*t of the input \"y\" cannot be told"));
  program = sized_program();
  program.tensor("z")["sizes"][0] = {{"as_expr", {{"expr_str", "Symbol('u0', integer=True)"}}}};
  CHECK_THROWS_WITH(
      with_sizes(read_graph(program.text(), "m.pt2"), {{"b", 4}, {"t", 5}}),
      Catch::Contains("the tensor \"z\" has the size u0, of which u0 depends on the data"));
}

TEST_CASE("sizes that become negative or overflow are refused") {
  SmallProgram program = sized_program();
  program.tensor("z")["sizes"][0] = {{"as_expr", {{"expr_str", "Add(Symbol('b'), Integer(-9))"}}}};
  CHECK_THROWS_WITH(with_sizes(read_graph(program.text(), "m.pt2"), {{"b", 4}, {"t", 5}}),
                    Catch::Contains("the tensor \"z\" has the size or stride b + -9, which is -5"));
  const Graph graph = sized_graph();
  const int64_t large = int64_t{1} << 40;
  CHECK_THROWS_WITH(with_sizes(graph, {{"b", large}, {"t", large}}), Catch::Contains("overflow"));
  CHECK_THROWS_WITH(with_sizes(graph, {{"b", large}, {"t", 1 << 21}}), Catch::Contains("overflow"));
}

}  // namespace
}  // namespace dstrain::exported
