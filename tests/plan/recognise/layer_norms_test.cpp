// The sums of rows and of squares, and the map that divides by their root, become layer_norm.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_layer_norms {
namespace {

constexpr int64_t kColumns = 6;
constexpr float kEps = 1e-6f, kN = kColumns, kPart = 1 / kN;
const Shape kRows{2, 3, kColumns};
const Formula kX = Formula::input(0), kMean = Formula::input(1), kVariance = Formula::input(2),
              kW = Formula::input(3), kB = Formula::input(4), kAdded = Formula::input(5);

// How a norm may be written.
struct Written {
  Formula norm = (kX - kMean) / square_root(kVariance + kEps) * kW + kB;
  Formula term = kX * kPart;                             // of the mean
  Formula square = (kX - kMean) * (kX - kMean) * kPart;  // of the variance
  View of_x = dense_view(kRows), of_sum = strided({3, 1, 0}), of_w = strided({0, 0, 1});
  bool detached = false;        // the mean
  std::optional<View> added{};  // operand 5
  bool in_steps = false;        // maps for the difference and for what is 1 by the root
  bool weight_is_given = false;
};

Program recognised(const Written& w) {
  GeneralForms p({3, kColumns});
  Builder& b = p.builder;
  const Builder::Seen x{p.x, w.of_x};
  const BufferId weight = b.parameter("norm.weight", {kColumns}, Init::ones),
                 bias = b.parameter("norm.bias", {kColumns}, Init::zeros);
  const BufferId sum = w.detached
                           ? b.detached_reduce(Reduction::sum, w.term, kRows, 2, {x}, DType::f32)
                           : b.reduce(Reduction::sum, w.term, kRows, 2, {x});
  const Builder::Seen mean{sum, w.of_sum};
  if (w.in_steps) {
    const BufferId difference = b.map(kX - kMean, kRows, {x, mean});
    const Builder::Seen d{difference, dense_view(kRows)};
    const BufferId squares = b.reduce(Reduction::sum, kX * kX, kRows, 2, {d});
    const Shape each{2, 3};
    const BufferId root =
        b.map(1 / square_root(kX / kN + kEps), each, {{squares, dense_view(each)}});
    const BufferId scaled = b.map(kX * kMean, kRows, {d, {root, w.of_sum}});
    b.map(kX * kMean + kVariance, kRows,
          {{scaled, dense_view(kRows)}, {weight, w.of_w}, {bias, w.of_w}});
  } else {
    const BufferId squares = b.reduce(Reduction::sum, w.square, kRows, 2, {x, mean});
    std::vector<Builder::Seen> operands{
        x, mean, {squares, w.of_sum}, {weight, w.of_w}, {bias, strided({0, 0, 1})}};
    if (w.added)
      operands.push_back({b.input("added", InputRole::array, DType::f32, {3, kColumns}), *w.added});
    b.map(w.norm, kRows, operands);
  }
  recognise(p.program);
  return p.program;
}

TEST_CASE("layer norms are recognised in the ways in which they are written") {
  const Formula d = kX - kMean, root = square_root(kVariance + kEps);
  std::vector<Written> ways{{.in_steps = true}};
  for (const Formula& norm : {kW * (d / root) + kB, kB + (d * (1 / root)) * kW,
                              (kW * d) / root + kB, kW * (1 / root) * d + kB})
    ways.push_back({.norm = norm});
  // Sums that are divided later, by the number of columns or by what is 1 by it.
  for (const Formula& mean : {kMean / kN, kMean * kPart})
    for (const Formula& variance : {kVariance / kN, kVariance * kPart})
      ways.push_back({.norm = (kX - mean) / square_root(variance + kEps) * kW + kB,
                      .term = kX,
                      .square = (kX - mean) * (kX - mean)});
  for (const Written& w : ways) {
    const Program p = recognised(w);
    REQUIRE(operations(p) == "layer_norm");
    CHECK(p.instructions[0].reads ==
          std::vector{p.inputs[0].buffer, p.parameters[0].value, p.parameters[1].value});
    CHECK(attrs_as<LayerNormAttrs>(p.instructions[0].attrs) == LayerNormAttrs{kEps});
  }
}

TEST_CASE("a layer norm that is added to rows becomes a norm and a sum") {
  for (const Formula& sum : {kAdded + Written{}.norm, (Written{}.norm) + kAdded}) {
    const Program p = recognised({.norm = sum, .added = dense_view(kRows)});
    REQUIRE(operations(p) == "layer_norm add_dropout");
    CHECK(p.instructions[1].reads == std::vector{p.inputs[1].buffer, p.instructions[0].writes[0]});
    CHECK(operations(recognised({.norm = sum, .added = strided({0, 0, 1})})) ==
          "reduce reduce map");
  }
}

TEST_CASE("what is no layer norm stays as it is") {
  const auto stays = [](const Written& w) {
    return operations(recognised(w)) == "reduce reduce map";
  };
  const auto normed = [](const Formula& root) { return (kX - kMean) / root * kW + kB; };
  CHECK(stays({.norm = normed(square_root(kVariance + -1e-6f))}));
  CHECK(stays({.norm = normed(square_root(kVariance) + kEps)}));
  CHECK(stays({.norm = (kX - kMean) / square_root(kVariance + kEps) * kW - kB}));
  CHECK(stays({.norm = (kX + kMean) / square_root(kVariance + kEps) * kW + kB}));
  // The variance of a sample, and means over other numbers of columns.
  CHECK(stays({.square = (kX - kMean) * (kX - kMean) / (kN - 1)}));
  CHECK(stays({.square = (kX - kMean) * (kX - kMean)}));
  CHECK(stays({.term = kX * (1.0f / 5)}));
  CHECK(stays({.square = absolute(kX - kMean) * kPart}));
  CHECK(stays({.square = kX * (kX - kMean) * kPart}));
  // A mean over another dimension, rows in another order, and one through which no gradient goes.
  CHECK(stays({.of_x = strided({kColumns, 2 * kColumns, 1})}));
  CHECK(stays({.of_x = strided({18, 1, 3})}));
  CHECK(stays({.of_sum = strided({0, 1, 0})}));
  CHECK(stays({.of_w = strided({0, 1, 0})}));
  CHECK(stays({.detached = true}));
}

}  // namespace
}  // namespace dstrain::recognised_layer_norms
