#include "models/exported/lower/value.h"

#include <catch2/catch.hpp>

namespace dstrain::exported {
namespace {

// Returns the elements of a plain value's buffer, in the order of its indices.
std::vector<int64_t> elements_of(const Value& value) {
  REQUIRE(value.operands.size() == 1);
  const View& view = value.operands[0].view;
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < value.shape.elements(); ++i) {
    int64_t rest = i, element = view.offset;
    for (int d = value.shape.rank - 1; d >= 0; --d) {
      element += rest % value.shape[d] * view.strides[static_cast<size_t>(d)];
      rest /= value.shape[d];
    }
    elements.push_back(element);
  }
  return elements;
}

using Elements = std::vector<int64_t>;

// A buffer of shape (2, 3).
Value two_by_three() {
  return whole(0, {2, 3}, ScalarType::f32);
}

TEST_CASE("dimensions of values change their views") {
  CHECK(elements_of(transpose(two_by_three(), 0, 1)) == Elements{0, 3, 1, 4, 2, 5});
  CHECK(elements_of(slice(two_by_three(), 1, 1, 2)) == Elements{1, 2, 4, 5});
  CHECK(elements_of(slice(two_by_three(), 1, 0, 2, 2)) == Elements{0, 2, 3, 5});
  CHECK(elements_of(select(two_by_three(), 0, 1)) == Elements{3, 4, 5});
  CHECK(elements_of(expand(select(two_by_three(), 0, 1), {2, 3})) == Elements{3, 4, 5, 3, 4, 5});
  const Value with_one = unsqueeze(two_by_three(), 1);
  CHECK(with_one.shape == Shape{2, 1, 3});
  CHECK(elements_of(expand(with_one, {2, 2, 3})) == Elements{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(squeeze(with_one, 1).shape == Shape{2, 3});
}

TEST_CASE("values are reshaped where they are, if they walk evenly") {
  const Value x = whole(0, {2, 3, 4}, ScalarType::f32);
  const auto flat = reshape(x, {6, 4});
  REQUIRE(flat);
  CHECK(flat->is_dense());
  const auto apart = reshape(slice(x, 2, 0, 2), {6, 2});
  REQUIRE(apart);
  CHECK(elements_of(*apart) == Elements{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21});
  CHECK_FALSE(reshape(transpose(x, 0, 1), {6, 4}));
  const auto heads = reshape(transpose(whole(0, {2, 8}, ScalarType::f32), 0, 1), {4, 2, 2});
  REQUIRE(heads);
  CHECK(elements_of(*heads) == Elements{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
  const auto ones = reshape(x, {1, 2, 1, 12, 1});
  REQUIRE(ones);
  CHECK(ones->shape == Shape{1, 2, 1, 12, 1});
  CHECK(ones->is_dense());
}

TEST_CASE("a value is dense if it has the elements of its buffer in order") {
  CHECK(two_by_three().is_dense());
  CHECK_FALSE(transpose(two_by_three(), 0, 1).is_dense());
  CHECK_FALSE(select(two_by_three(), 0, 1).is_dense());
  CHECK(select(two_by_three(), 0, 0).is_dense());
  CHECK_FALSE(number(2).is_dense());
  Value squared = two_by_three();
  squared.formula = squared.formula * squared.formula;
  CHECK_FALSE(squared.is_dense());
}

TEST_CASE("shapes have a common one by PyTorch's rules") {
  CHECK(broadcast({4, 1, 3}, {2, 1}) == Shape{4, 2, 3});
  CHECK(broadcast({}, {2, 3}) == Shape{2, 3});
  CHECK_FALSE(broadcast({2, 3}, {2, 2}));
}

TEST_CASE("bounds of an operand stay with their dimension") {
  Value joined = two_by_three();  // behind one column of zeros
  joined.shape = {2, 4};
  joined.operands[0].view = {.offset = -1, .strides = {3, 1}, .begin = {0, 1}};
  CHECK(joined.is_bounded());
  const auto begins = [](const Value& value) {
    return std::vector(value.operands[0].view.begin.begin(),
                       value.operands[0].view.begin.begin() + value.shape.rank);
  };
  CHECK(begins(transpose(joined, 0, 1)) == Elements{1, 0});
  CHECK(begins(unsqueeze(joined, 0)) == Elements{0, 0, 1});
  CHECK(begins(expand(unsqueeze(joined, 1), {2, 5, 4})) == Elements{0, 0, 1});
  CHECK(begins(squeeze(unsqueeze(joined, 2), 2)) == Elements{0, 1});
  CHECK(begins(*reshape(joined, {2, 1, 4})) == Elements{0, 0, 1});
  CHECK_FALSE(reshape(joined, {2, 2, 2}));
  CHECK_FALSE(reshape(joined, {8}));
  CHECK_THROWS(slice(joined, 1, 0, 2));
  CHECK_FALSE(slice(joined, 0, 0, 1).operands[0].view.bounds(0, 1));
}

TEST_CASE("dimensions are put in the order of the first operand that has all elements") {
  using Order = std::vector<int>;
  CHECK(order_in_memory(two_by_three()) == Order{0, 1});
  CHECK(order_in_memory(transpose(two_by_three(), 0, 1)) == Order{1, 0});
  const Value images = whole(0, {2, 4, 5, 3}, ScalarType::f32);  // samples, sizes, channels
  const Value channels_first = permute(images, std::vector{0, 3, 1, 2});
  CHECK(order_in_memory(channels_first) == Order{0, 2, 3, 1});
  // Values of channels are read for all positions.
  Value scaled = channels_first;
  scaled.operands.insert(scaled.operands.begin(),
                         expand(whole(1, {3, 1, 1}, ScalarType::f32), {2, 3, 4, 5}).operands[0]);
  CHECK(order_in_memory(scaled) == Order{0, 2, 3, 1});
  CHECK(order_in_memory(number(1)) == Order{});
}

}  // namespace
}  // namespace dstrain::exported
