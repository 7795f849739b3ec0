// The product of rows and a weight becomes linear, which takes the bias and relu of maps.
#include <catch2/catch.hpp>
#include <optional>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_products {
namespace {

constexpr int64_t kBatch = 2, kTokens = 3, kIn = 4, kOut = 4;
const Formula kX = Formula::input(0), kY = Formula::input(1), kZ = Formula::input(2);

// How a product may be written.
struct Written {
  View of_x = strided({kTokens * kIn, kIn, 1}), of_weight = strided({0, kIn, 1});
  int64_t rows_of_weight = kOut;
  bool weight_is_given = false;  // an input, not a parameter
  // What a map does with the product and a bias, and with rows.
  std::optional<Formula> biased{};
  View of_bias = strided({0, 0, 1});
  bool bias_is_given = false;
  std::optional<Formula> then{};  // another map
  bool read_elsewhere = false;
};

Program written(const Written& w) {
  GeneralForms p({kTokens, kIn}, kBatch);
  Builder& b = p.builder;
  const BufferId weight = w.weight_is_given
                              ? b.input("weight", InputRole::array, DType::f32, {kOut, kIn})
                              : b.parameter("fc.weight", {w.rows_of_weight, kIn}, Init::normal, 1);
  BufferId y = b.contract({p.x, w.of_x}, {weight, w.of_weight}, {kBatch}, kTokens, kOut, kIn);
  const Shape space{kBatch, kTokens, kOut};
  const View dense = dense_view(space);
  if (w.read_elsewhere) b.map(sine(kX), space, {{y, dense}});
  if (w.biased) {
    const BufferId bias = w.bias_is_given
                              ? b.input("bias", InputRole::array, DType::f32, {kTokens, kOut})
                              : b.parameter("fc.bias", {kOut}, Init::zeros);
    std::vector<Builder::Seen> operands{{y, dense}, {bias, w.of_bias}};
    if (w.biased->reads(2)) operands.push_back({p.x, dense});
    y = b.map(*w.biased, space, operands);
  }
  if (w.then) b.map(*w.then, space, {{y, dense}});
  recognise(p.program);
  return p.program;
}

Activation activation_of(const Instruction& op) {
  return attrs_as<ActivationAttrs>(op.attrs).activation;
}

TEST_CASE("the product of rows and a weight is linear") {
  const Program p = written({});
  REQUIRE(operations(p) == "linear");
  CHECK(p.instructions[0].reads ==
        std::vector{p.inputs[0].buffer, p.parameters[0].value, BufferId{kNone}});
  CHECK(p.at(p.instructions[0].writes[0]).shape == Shape{kBatch * kTokens, kOut});
}

TEST_CASE("linear has the bias that a map adds, and the activation") {
  const Program plain = written({.biased = kY + kX});
  REQUIRE(operations(plain) == "linear");
  CHECK(plain.instructions[0].reads[2] == plain.parameters[1].value);
  for (const Written& w :
       {Written{.biased = relu(kX + kY)}, {.biased = kX + kY, .then = relu(kX)}}) {
    const Program p = written(w);
    REQUIRE(operations(p) == "linear");
    CHECK(activation_of(p.instructions[0]) == Activation::relu);
    CHECK(p.instructions[0].reads[2] == p.parameters[1].value);
  }
  CHECK(operations(written({.then = relu(kX)})) == "linear");
  const Program smooth = written({.biased = gelu(kX + kY)});
  REQUIRE(operations(smooth) == "linear activation");
  CHECK(activation_of(smooth.instructions[0]) == Activation::none);
  CHECK(smooth.instructions[1].reads == smooth.instructions[0].writes);
}

TEST_CASE("rows that are added with a bias are added to linear") {
  for (const Formula& sum : {kZ + (kX + kY), (kX + kY) + kZ, (kX + kZ) + kY}) {
    const Program p = written({.biased = sum});
    REQUIRE(operations(p) == "linear add_dropout");
    CHECK(p.instructions[0].reads[2] == p.parameters[1].value);
    CHECK(p.instructions[1].reads == std::vector{p.inputs[0].buffer, p.instructions[0].writes[0]});
  }
}

TEST_CASE("products that linear cannot have stay as they are") {
  const auto stays = [](const Written& w) { return operations(written(w)) == "contract"; };
  CHECK(stays({.of_weight = strided({0, 1, kOut})}));  // read transposed
  CHECK(stays({.rows_of_weight = kOut + 1}));          // some of its rows
  CHECK(stays({.of_weight = strided({0, kIn, 1}, kIn), .rows_of_weight = kOut + 1}));
  CHECK(stays({.of_x = strided({kIn, kBatch * kIn, 1})}));
  CHECK(stays({.of_weight = strided({0, kIn, 1}), .weight_is_given = true}));
}

TEST_CASE("what is no bias, or is not added to a product alone, stays a map") {
  CHECK(operations(written({.biased = kX * kY})) == "linear map");
  CHECK(operations(written({.biased = kX - kY})) == "linear map");
  CHECK(operations(written({.biased = kX + kY, .of_bias = strided({0, 1, 0})})) == "linear map");
  CHECK(operations(written({.biased = sigmoid(kX + kY)})) == "linear map");
  CHECK(operations(written({.biased = kX + kY, .read_elsewhere = true})) == "linear map map");
  CHECK(operations(written({.biased = kX + kY,
                            .of_bias = strided({kTokens * kOut, kOut, 1}),
                            .bias_is_given = true})) == "linear add_dropout");
  CHECK(operations(written({.then = relu(kX), .read_elsewhere = true})) == "linear map activation");
}

}  // namespace
}  // namespace dstrain::recognised_products
