// The product of values and a softmax of scores, causal ones or all, becomes attention.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_attention {
namespace {

constexpr int64_t kBatch = 2, kTokens = 5, kHeads = 3, kWidth = 4, kRow = kHeads * kWidth;
const Formula kP = Formula::input(0), kMask = Formula::input(1);
const float kBelow = -std::numeric_limits<float>::infinity(), kScale = 0.5f;

struct Written {
  Formula scores = select(kMask, kBelow, kP* kScale);
  // The mask's value by whether a query sees a key.
  float shown = 0, hidden = 1;
  int64_t behind = 0;        // queries see keys up to so many behind their own
  int64_t window = kTokens;  // and so many up to their own
  bool has_mask =
      true;  // false: the softmax is of scores times kScale, or of what `scores` makes of them
  bool drops = false;
  bool read_elsewhere = false;  // the weights
  int64_t packed_columns = 0;   // not 0: queries, keys and values are columns of rows of so many
};

// Returns a program that writes attention in general operations, and multiplies its rows by a weight.
Program written(const Written& w) {
  const int64_t row = w.packed_columns > 0 ? w.packed_columns : kRow;
  GeneralForms p({kTokens, row}, kBatch);
  Builder& b = p.builder;
  const bool packed = w.packed_columns > 0;
  const BufferId k = packed ? p.x : b.input("k", InputRole::array, DType::f32, {kTokens, row});
  const BufferId v = packed ? p.x : b.input("v", InputRole::array, DType::f32, {kTokens, row});
  const auto heads = [&](int64_t part) {
    return strided({kTokens * row, kWidth, row, 1}, packed ? part * kRow : 0);
  };
  const Shape batch{kBatch, kHeads}, space{kBatch, kHeads, kTokens, kTokens};
  const BufferId scores =
      b.contract({p.x, heads(0)}, {k, heads(1)}, batch, kTokens, kTokens, kWidth);
  std::vector<float> mask;
  for (int64_t query = 0; query < kTokens; ++query)
    for (int64_t key = 0; key < kTokens; ++key)
      mask.push_back(key <= query + w.behind && key > query - w.window ? w.shown : w.hidden);
  const BufferId table = b.constant("mask", {kTokens, kTokens}, DType::f32, mask.data());
  const View dense = dense_view(space), by_row = strided({kHeads * kTokens, kTokens, 1, 0});
  const View of_mask = strided({0, 0, kTokens, 1});
  const BufferId masked = !w.has_mask && w.scores == kP ? scores
                          : !w.has_mask
                              ? b.map(w.scores, space, {{scores, dense}})
                              : b.map(w.scores, space, {{scores, dense}, {table, of_mask}});
  const BufferId most =
      b.detached_reduce(Reduction::maximum, kP, space, 3, {{masked, dense}}, DType::f32);
  const BufferId sum = b.reduce(Reduction::sum, exponential(kP - Formula::input(1)), space, 3,
                                {{masked, dense}, {most, by_row}});
  BufferId weights = b.map(exponential(kP - Formula::input(1)) / Formula::input(2), space,
                           {{masked, dense}, {most, by_row}, {sum, by_row}});
  if (w.drops) weights = b.dropout(weights, kTokens, 0.25);
  if (w.read_elsewhere) b.activation(weights, Activation::relu);
  View values = heads(2);
  std::swap(values.strides[2], values.strides[3]);
  const BufferId y = b.contract({weights, dense}, {v, values}, batch, kTokens, kWidth, kTokens);
  const View by_token = strided({kHeads * kTokens * kWidth, kWidth, kTokens * kWidth, 1});
  const BufferId rows =
      b.matrix(b.map(kP, {kBatch, kTokens, kHeads, kWidth}, {{y, by_token}}), kRow);
  b.linear(rows, b.parameter("out", {kRow, kRow}, Init::normal, 1), kNone, Activation::none);
  recognise(p.program);
  return p.program;
}

TEST_CASE("attention is recognised in the ways in which it is written") {
  const Written hides{},
      shows{.scores = select(kMask, kScale * kP, -1e30f), .shown = 1, .hidden = 0},
      added{.scores = kP / 2.0f + kMask, .shown = 0, .hidden = kBelow};
  for (const Written& w : {hides, shows, added}) {
    CAPTURE(w.shown, w.hidden);
    const Program p = written(w);
    REQUIRE(operations(p) == "attention linear");
    const auto attrs = attrs_as<AttentionAttrs>(p.instructions[0].attrs);
    CHECK(attrs == AttentionAttrs{.heads = kHeads, .seq_len = kTokens, .kv_heads = kHeads});
    CHECK(p.instructions[0].reads ==
          std::vector{p.inputs[0].buffer, p.inputs[1].buffer, p.inputs[2].buffer});
    CHECK(p.instructions[1].reads[0] == p.instructions[0].writes[0]);
    CHECK(p.constants.empty());  // the mask takes no memory
  }
}

TEST_CASE("another scale, dropout and packed rows are attention's, too") {
  const Program scaled = written({.scores = select(kMask, kBelow, kP * 0.25f)});
  REQUIRE(operations(scaled) == "attention linear");
  CHECK(attrs_as<AttentionAttrs>(scaled.instructions[0].attrs).scale == 0.25);
  const Program plain = written({.scores = select(kMask, kBelow, kP)});
  REQUIRE(operations(plain) == "attention linear");
  CHECK(attrs_as<AttentionAttrs>(plain.instructions[0].attrs).scale == 1);
  const Program dropped = written({.drops = true});
  REQUIRE(operations(dropped) == "attention linear");
  CHECK(attrs_as<AttentionAttrs>(dropped.instructions[0].attrs).dropout == 0.25f);
  const Program packed = written({.packed_columns = 3 * kRow});
  REQUIRE(operations(packed) == "attention linear");
  CHECK(packed.instructions[0].reads == std::vector{packed.inputs[0].buffer});
}

TEST_CASE("a mask of the last keys is a window") {
  for (const int64_t window : {int64_t{1}, int64_t{3}, kTokens - 1}) {
    const Program p = written({.window = window});
    REQUIRE(operations(p) == "attention linear");
    CHECK(attrs_as<AttentionAttrs>(p.instructions[0].attrs).window == window);
  }
}

TEST_CASE("a softmax of all scores is attention that is not causal, however it is written") {
  const auto all = [](const Written& w) {
    const Program p = written(w);
    REQUIRE(operations(p) == "attention linear");
    CHECK(p.constants.empty());
    const auto attrs = attrs_as<AttentionAttrs>(p.instructions[0].attrs);
    CHECK_FALSE(attrs.causal);
    CHECK(attrs.window == 0);
    return attrs;
  };
  CHECK(all({.scores = kP * kScale, .has_mask = false}) ==
        AttentionAttrs{.heads = kHeads, .seq_len = kTokens, .kv_heads = kHeads, .causal = false});
  CHECK(all({.scores = kP, .has_mask = false}).scale == 1);
  CHECK(all({.scores = kP / 4.0f, .has_mask = false}).scale == 0.25);
  CHECK(all({.scores = kP * kScale, .has_mask = false, .drops = true}).dropout == 0.25f);
  // Masks that show all keys.
  CHECK(all({.behind = kTokens}).scale == 0);
  CHECK(all({.hidden = 0}).scale == 0);
  CHECK(all({.scores = kP / 4.0f + kMask, .behind = kTokens}).scale == 0.25);
  const Program packed =
      written({.scores = kP * kScale, .has_mask = false, .packed_columns = 3 * kRow});
  REQUIRE(operations(packed) == "attention linear");
  CHECK(packed.instructions[0].reads == std::vector{packed.inputs[0].buffer});
}

TEST_CASE("other masks and other weights stay as they are") {
  const auto stays = [](const Written& w) {
    return operations(written(w)).find("attention") == std::string::npos;
  };
  CHECK(stays({.behind = 1}));
  // Both readers of dropped weights have one mask.
  CHECK(stays({.drops = true, .read_elsewhere = true}));
  CHECK_FALSE(stays({.read_elsewhere = true}));
  CHECK(written({.behind = 1}).constants.size() == 1);
  CHECK(stays({.behind = -1}));
  CHECK(stays({.shown = 1, .hidden = 0}));
  CHECK(stays({.scores = select(kMask, -10.0f, kP * kScale)}));
  CHECK(stays({.scores = kP / 2.0f + kMask, .shown = 1, .hidden = kBelow}));
  CHECK(stays({.scores = select(kMask, kBelow, -0.5f * kP)}));
  CHECK(stays({.scores = select(kMask, kBelow, kP * kP)}));
  CHECK(stays({.scores = kP * kP, .has_mask = false}));
  CHECK(stays({.scores = kP * -0.5f, .has_mask = false}));
  CHECK(stays({.scores = kP + 1.0f, .has_mask = false}));
  CHECK(stays({.behind = kTokens, .window = 3}));
}

}  // namespace
}  // namespace dstrain::recognised_attention
