// A sum of squares and the map that divides by its root become rms_norm.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_norms {
namespace {

constexpr int64_t kColumns = 6;
constexpr float kEps = 1e-6f;
const Shape kRows{2, 3, kColumns};
const Formula kX = Formula::input(0), kW = Formula::input(1), kSum = Formula::input(2);

// How a norm may be written.
struct Written {
  Formula formula = kW * (kX / square_root(kSum / float{kColumns} + kEps));
  Formula square = kX * kX;
  Shape space = kRows;
  View of_x = dense_view(kRows), of_w = strided({0, 0, 1}), of_sum = strided({3, 1, 0});
  int kept = 2;
  int64_t weights = kColumns;
  std::optional<View> added{};  // operand 3
};

Program recognised(const Written& w) {
  GeneralForms p({3, kColumns});
  const BufferId weight = p.builder.parameter("norm.weight", {w.weights}, Init::ones);
  const BufferId sum = p.builder.reduce(Reduction::sum, w.square, w.space, w.kept, {{p.x, w.of_x}});
  std::vector<Builder::Seen> operands{{p.x, w.of_x}, {weight, w.of_w}, {sum, w.of_sum}};
  if (w.added)
    operands.push_back(
        {p.builder.input("added", InputRole::array, DType::f32, {3, kColumns}), *w.added});
  p.builder.map(w.formula, w.space, operands);
  recognise(p.program);
  return p.program;
}

TEST_CASE("norms are recognised in the ways in which they are written") {
  const Formula mean = kSum * (1 / float{kColumns}) + kEps, root = square_root(mean);
  for (const Formula& formula : {Written{}.formula, kW * (kX * (1 / root)), (kX * (1 / root)) * kW,
                                 (kX / root) * kW, (kX * kW) * (1 / root)}) {
    const Program p = recognised({.formula = formula});
    REQUIRE(operations(p) == "rms_norm");
    CHECK(p.instructions[0].reads == std::vector{p.inputs[0].buffer, p.parameters[0].value});
    CHECK(attrs_as<RmsNormAttrs>(p.instructions[0].attrs) == RmsNormAttrs{kEps, false});
  }
  const Program centred = recognised({.formula = (1 + kW) * (kX * (1 / root))});
  REQUIRE(operations(centred) == "rms_norm");
  CHECK(attrs_as<RmsNormAttrs>(centred.instructions[0].attrs).centred);
}

TEST_CASE("a norm of each head is one of runs of a row's columns") {
  const Shape heads{2, 3, 2, kColumns / 2};
  const Program p = recognised({.formula = kW * (kX / square_root(kSum / 3.0f + kEps)),
                                .space = heads,
                                .of_x = dense_view(heads),
                                .of_w = strided({0, 0, 0, 1}),
                                .of_sum = strided({6, 2, 1, 0}),
                                .kept = 3,
                                .weights = kColumns / 2});
  REQUIRE(operations(p) == "rms_norm");
  CHECK(p.at(p.instructions[0].writes[0]).shape == Shape{6, kColumns});
  CHECK(p.at(p.instructions[0].writes[1]).shape == Shape{6, 2});
}

TEST_CASE("a norm that is added to rows becomes a norm and a sum") {
  const Formula sum = Formula::input(3) + Written{}.formula;
  const Program p = recognised({.formula = sum, .added = dense_view(kRows)});
  REQUIRE(operations(p) == "rms_norm add_dropout");
  CHECK(p.instructions[1].reads == std::vector{p.inputs[1].buffer, p.instructions[0].writes[0]});
  CHECK(operations(recognised({.formula = sum, .added = strided({0, 0, 1})})) == "reduce map");
}

TEST_CASE("what is no norm stays as it is") {
  const auto stays = [](const Written& w) { return operations(recognised(w)) == "reduce map"; };
  // Another number of columns, another sum, another place of eps.
  CHECK(stays({.formula = kW * (kX / square_root(kSum / 5.0f + kEps))}));
  CHECK(stays({.square = kX * kX * kX}));
  CHECK(stays({.square = absolute(kX)}));
  CHECK(stays({.formula = kW * (kX / (square_root(kSum / float{kColumns}) + kEps))}));
  CHECK(stays({.formula = kW + kX / square_root(kSum / float{kColumns} + kEps)}));
  CHECK(stays({.formula = kW * (kX / square_root(kSum / float{kColumns} + -1.0f))}));
  // Rows that are read in another order, or all by one sum.
  CHECK(stays({.of_x = strided({kColumns, 2 * kColumns, 1})}));
  CHECK(stays({.of_sum = strided({0, 0, 0})}));
  CHECK(stays({.of_w = strided({0, 0, 0})}));
}

}  // namespace
}  // namespace dstrain::recognised_norms
