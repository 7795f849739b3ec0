#include "runtime/ir/views/view.h"

#include <catch2/catch.hpp>

#include "runtime/ir/views/adjoint.h"
#include "tests/support/random_views.h"

namespace dstrain {
namespace {

std::vector<int64_t> elements_of(const View& view, const Shape& space) {
  std::vector<int64_t> elements;
  for_indices(space,
              [&](const View::Numbers& index) { elements.push_back(element_at(view, index)); });
  return elements;
}

}  // namespace

TEST_CASE("views of row-major operands, whole and broadcast") {
  const Shape space{2, 3, 4};
  CHECK(dense_view(space).strides == View::Numbers{12, 4, 1});
  CHECK(is_dense(dense_view(space), space));
  CHECK(broadcast_view({3, 1}, space)->strides == View::Numbers{0, 1, 0});
  CHECK(broadcast_view({4}, space)->strides == View::Numbers{0, 0, 1});
  CHECK(broadcast_view({}, space)->strides == View::Numbers{});
  CHECK_FALSE(broadcast_view({2, 4}, space));
  CHECK_FALSE(broadcast_view({1, 2, 3, 4}, space));
  View part = dense_view(space);
  part.end[2] = 3;
  CHECK_FALSE(is_dense(part, space));
  CHECK(elements_read(part, space)->last == 22);
  part.begin[1] = 3;
  CHECK_FALSE(elements_read(part, space));
}

TEST_CASE("a collapsed space has the same elements in the same order, in fewer dimensions") {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Draw draw(seed);
    Shape space = random_space(draw, 6, 300);
    const auto kept = static_cast<int>(draw(0, space.rank));
    std::vector<View> views{random_view(draw, space, draw.once_in(3)).view,
                            random_view(draw, space, draw.once_in(3)).view};
    std::vector<std::vector<int64_t>> before;
    for (const View& view : views) before.push_back(elements_of(view, space));
    int64_t results = 1;
    for (int d = 0; d < kept; ++d) results *= space[d];
    INFO("seed " << seed << ": " << to_string(space));
    const int left = collapse(space, views, kept);
    for (size_t i = 0; i < views.size(); ++i) CHECK(elements_of(views[i], space) == before[i]);
    for (int d = 0; d < left; ++d) results /= space[d];
    CHECK(results == 1);
  }
  Shape space{2, 1, 3, 4};
  std::vector<View> views{dense_view(space)};
  collapse(space, views);
  CHECK(space == Shape{24});
}

TEST_CASE("an adjoint has each element of an operand, with the indices at which a view reads it") {
  int found = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Draw draw(seed);
    const Shape space = random_space(draw, 4, 200);
    const RandomOperand operand = random_view(draw, space, false);
    const auto adjoint = Adjoint::of(operand.view, space, operand.elements);
    if (!adjoint) continue;
    ++found;
    INFO("seed " << seed << ": " << to_string(space));
    Shape kept = adjoint->space();
    kept.rank = adjoint->kept();
    CHECK(kept.elements() == operand.elements);
    // A view of the op's own indices: which of them belong to each element.
    const std::vector<int64_t> numbers =
        elements_of(adjoint->through(dense_view(space)), adjoint->space());
    const std::vector<int64_t> reads = elements_of(operand.view, space);
    const size_t each = numbers.size() / static_cast<size_t>(operand.elements);
    std::vector<int64_t> seen(reads.size(), 0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 0) continue;
      const auto index = static_cast<size_t>(numbers[i]);
      CHECK(reads[index] == static_cast<int64_t>(i / each));
      ++seen[index];
    }
    CHECK(std::ranges::count(seen, 1) == static_cast<int64_t>(seen.size()));
  }
  CHECK(found > 500);
}

TEST_CASE("there is no way back through a view that overlaps itself or walks backwards") {
  View windows;
  windows.strides = {1, 1};
  CHECK_FALSE(Adjoint::of(windows, {4, 3}, 6));
  View backwards;
  backwards.offset = 3;
  backwards.strides = {-1};
  CHECK_FALSE(Adjoint::of(backwards, {4}, 4));
}

TEST_CASE("a view of another space reads the same elements in the same order") {
  struct Case {
    Shape from{}, to{};
    View view{};
    bool is = true;
  };
  View transposed, sliced, repeated, bounded;
  transposed.strides = {1, 6, 0};
  sliced.strides = {24, 8, 2};
  sliced.offset = 3;
  repeated.strides = {0, 4, 1};
  bounded.strides = {12, 4, 1};
  bounded.offset = -2;
  bounded.begin[2] = 2;
  for (const Case& c : std::vector<Case>{
           {{6, 4}, {2, 3, 2, 2}, dense_view({6, 4})},
           {{2, 3, 4}, {24}, dense_view({2, 3, 4})},
           {{6, 4}, {3, 2, 4}, transposed},
           {{6, 4}, {24}, transposed, false},
           {{2, 3, 4}, {6, 4}, sliced},
           {{2, 3, 4}, {1, 6, 2, 2, 1}, sliced},
           {{2, 3, 4}, {24}, sliced},
           {{2, 3, 4}, {2, 12}, repeated},
           {{2, 3, 4}, {6, 4}, repeated, false},
           {{2, 3, 4}, {6, 4}, bounded},
           {{2, 3, 4}, {6, 2, 2}, bounded, false},
           {{2, 3, 4}, {2, 12}, bounded, false},
       }) {
    CAPTURE(to_string(c.from), to_string(c.to));
    const std::optional<View> view = reshaped(c.view, c.from, c.to);
    REQUIRE(view.has_value() == c.is);
    if (view) CHECK(elements_of(*view, c.to) == elements_of(c.view, c.from));
  }
}

TEST_CASE("what is read of elements that were read themselves is found where these are") {
  // Heads by tokens of rows of tokens, and again rows of tokens.
  View heads, tokens;
  heads.strides = {3, 12, 1};
  tokens.strides = {3, 15, 1};
  const Shape by_head{4, 5, 3}, by_token{5, 4, 3};
  const auto back = composed({by_token, tokens}, {by_head, heads});
  REQUIRE(back);
  CHECK(elements_of(back->view, back->space) == elements_of(dense_view({60}), {60}));
}

TEST_CASE("composed views read the elements that one reads of the other's") {
  uint32_t state = 1;
  const auto random = [&state](int64_t below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int64_t>((state >> 8) % static_cast<uint32_t>(below));
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    SeenElements inner{.view = {.offset = 200 + random(5)}};
    for (size_t d = 0; d < 3; ++d) {
      inner.space.append(1 + random(4));
      inner.view.strides[d] = random(30) - 4;
    }
    const std::vector<int64_t> read = elements_of(inner.view, inner.space);
    const auto n = static_cast<int64_t>(read.size());
    SeenElements outer{.view = {.offset = random(2) * random(n)}};
    const int64_t strides[] = {0, 1, inner.space[2], inner.space[1] * inner.space[2], 2};
    for (size_t d = 0; d < 2; ++d) {
      outer.space.append(1 + random(4));
      outer.view.strides[d] = strides[random(5)];
    }
    const auto range = elements_read(outer.view, outer.space);
    if (!range || range->last >= n) continue;
    const auto both = composed(outer, inner);
    if (!both) continue;
    ++found;
    std::vector<int64_t> expected;
    for (const int64_t element : elements_of(outer.view, outer.space))
      expected.push_back(read[static_cast<size_t>(element)]);
    CHECK(elements_of(both->view, both->space) == expected);
  }
  CHECK(found > 500);
}

}  // namespace dstrain
