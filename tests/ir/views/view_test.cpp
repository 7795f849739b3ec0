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

}  // namespace dstrain
