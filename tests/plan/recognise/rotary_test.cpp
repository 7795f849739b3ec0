// A map that turns halves of heads by tables of cosines and sines becomes rotary, and what reads it a copy.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_rotary {
namespace {

constexpr int64_t kBatch = 2, kTokens = 5, kHeads = 3, kWidth = 8, kHalf = kWidth / 2;
constexpr int64_t kRow = kHeads * kWidth;

// Returns a table (tokens, width) of a function of position * frequency, as PyTorch makes it in fp32.
std::vector<float> table(float (*function)(float), double theta, double factor, double bend) {
  std::vector<float> values;
  for (int64_t position = 0; position < kTokens; ++position)
    for (int64_t column = 0; column < kWidth; ++column) {
      const auto pair = static_cast<float>(column % kHalf);
      const float frequency =
          (1 + static_cast<float>(bend) * pair * pair) /
          (std::pow(static_cast<float>(theta), 2 * pair / kWidth) * static_cast<float>(factor));
      values.push_back(function(static_cast<float>(position) * frequency));
    }
  return values;
}
float cosine_of(float x) {
  return std::cos(x);
}
float sine_of(float x) {
  return std::sin(x);
}

struct Written {
  double theta = 10000, factor = 1;
  double bend = 0;  // how much the frequencies depart from powers of theta
  double sine_theta = theta;
  int64_t second = kHalf;  // where the second half begins
  int64_t token_stride = kRow;
  bool turns_back = false;
};

// Heads (batch, heads, tokens, width) of rows (batch * tokens, heads * width), turned.
Program written(const Written& w) {
  GeneralForms p({kTokens, kRow}, kBatch);
  const Shape space{kBatch, kHeads, kTokens, kWidth};
  const auto constant = [&](const char* name, float (*function)(float), double theta) {
    return p.builder.constant(name, {kTokens, kWidth}, DType::f32,
                              table(function, theta, w.factor, w.bend).data());
  };
  const BufferId cos = constant("cos", cosine_of, w.theta),
                 sin = constant("sin", sine_of, w.sine_theta);
  const View heads = strided({kTokens * kRow, kWidth, w.token_stride, 1});
  View second = heads, first = heads;
  second.offset = w.second;
  second.end[3] = kHalf;
  first.offset = -kHalf;
  first.begin[3] = kHalf;
  const View of_table = strided({0, 0, kWidth, 1});
  const Formula x = Formula::input(0), c = Formula::input(1), hi = Formula::input(2),
                lo = Formula::input(3), s = Formula::input(4);
  const Formula turned = w.turns_back ? x * c + (hi + -lo) * s : x * c + (-hi + lo) * s;
  p.builder.map(turned, space,
                {{p.x, heads}, {cos, of_table}, {p.x, second}, {p.x, first}, {sin, of_table}});
  recognise_rotary(p.program);
  return p.program;
}

TEST_CASE("turned heads are recognised, with the angles that the tables have") {
  for (const double theta : {10000.0, 500000.0, 1000000.0, 100.0}) {
    const Program p = written({.theta = theta});
    REQUIRE(operations(p) == "rotary map");
    const auto attrs = attrs_as<RotaryAttrs>(p.instructions[0].attrs);
    CHECK(attrs == RotaryAttrs{.head_size = kWidth, .seq_len = kTokens, .theta = theta});
    // What follows reads the turned rows as the map has read them.
    const auto copy = attrs_as<MapAttrs>(p.instructions[1].attrs);
    CHECK(copy.formula == Formula::input(0));
    CHECK(p.instructions[1].reads == p.instructions[0].writes);
  }
  const Program longer = written({.factor = 4});
  REQUIRE(operations(longer) == "rotary map");
  const auto attrs = attrs_as<RotaryAttrs>(longer.instructions[0].attrs);
  CHECK(attrs.kind == RotaryKind::linear);
  CHECK(attrs.factor == 4);
  CHECK(attrs.theta == 10000);
}

TEST_CASE("other turns stay as they are") {
  const auto stays = [](const Written& w) { return operations(written(w)) == "map"; };
  CHECK(stays({.turns_back = true}));
  CHECK(stays({.sine_theta = 10001}));
  CHECK(stays({.second = kHalf - 1}));
  CHECK(stays({.token_stride = kWidth}));
}

TEST_CASE("a table of other angles than those of a rotation stays as it is") {
  CHECK(operations(written({.bend = 1e-4})) == "map");
  CHECK(operations(written({.bend = 0})) == "rotary map");
}

}  // namespace
}  // namespace dstrain::recognised_rotary
