#include "runtime/ir/tensor_part.h"

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using By = TensorPart::By;
using Catch::Contains;

// A way to divide a tensor.
struct Division {
  Shape whole;
  TensorPart part;  // the first one
};

// Rows and columns, even and odd, fewer than parts, sections, further dimensions, and whole tensors.
std::vector<Division> divisions() {
  std::vector<Division> list;
  for (const int parts : {1, 2, 3, 4}) {
    for (const Shape& whole : {Shape{7, 5}, Shape{2, 3}, Shape{12, 1}, Shape{5, 2, 3}}) {
      list.push_back({whole, {.by = By::rows, .parts = parts}});
      list.push_back({whole, {.by = By::columns, .parts = parts}});
    }
    for (const Shape& whole : {Shape{36, 2}, Shape{36}})
      list.push_back({whole, {.by = By::rows, .parts = parts, .sections = 3}});
    list.push_back({{9}, {.by = By::rows, .parts = parts}});
  }
  for (const Shape& whole : {Shape{}, Shape{6}, Shape{4, 3}, Shape{0, 4}})
    list.push_back({whole, {}});
  return list;
}

// Returns the element of the whole tensor that each element of a part's memory is, by row and column; -1 for padding.
std::vector<int64_t> elements_in(const TensorPart& part, const Shape& whole) {
  const Shape held = held_shape(part, whole);
  std::vector<int64_t> list(static_cast<size_t>(held.elements()), -1);
  const int64_t all = whole.elements();
  const auto begin_of = [&](int64_t n, int64_t p) { return n * p / part.parts; };
  for (int64_t i = 0; i < all; ++i) {
    if (part.by == By::nothing) {
      list[static_cast<size_t>(i)] = i;
      continue;
    }
    if (part.by == By::columns) {
      const int64_t columns = whole[-1], begin = begin_of(columns, part.part);
      const int64_t row = i / columns, column = i % columns;
      if (column < begin || column >= begin_of(columns, part.part + 1)) continue;
      list[static_cast<size_t>(row * held[-1] + column - begin)] = i;
      continue;
    }
    const int64_t width = all / whole[0], rows = whole[0] / part.sections;
    const int64_t section = i / width / rows, row = i / width % rows,
                  begin = begin_of(rows, part.part), most = held[0] / part.sections;
    if (row < begin || row >= begin_of(rows, part.part + 1)) continue;
    list[static_cast<size_t>((section * most + row - begin) * width + i % width)] = i;
  }
  return list;
}

// What a function calls for a range: runs that are not empty, each as long as can be.
struct Called {
  std::vector<PartRun> runs;
  std::function<void(const PartRun&)> take() {
    return [this](const PartRun& run) { runs.push_back(run); };
  }
};

// Returns the runs of elements from `list`, which gives the whole tensor's element for each of the part's memory, that
// `is_in` takes.
template <class IsIn>
std::vector<PartRun> runs_in(const std::vector<int64_t>& list, const IsIn& is_in) {
  std::vector<PartRun> runs;
  for (int64_t held = 0; held < static_cast<int64_t>(list.size()); ++held) {
    const int64_t whole = list[static_cast<size_t>(held)];
    if (whole < 0 || !is_in(held, whole)) continue;
    if (!runs.empty() && runs.back().held + runs.back().count == held &&
        runs.back().whole + runs.back().count == whole)
      ++runs.back().count;
    else
      runs.push_back({held, whole, 1});
  }
  return runs;
}

bool same(const std::vector<PartRun>& a, const std::vector<PartRun>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const PartRun& x, const PartRun& y) {
    return x.held == y.held && x.whole == y.whole && x.count == y.count;
  });
}

TEST_CASE("the parts of a tensor have each of its elements once, at their rows and columns") {
  for (const Division& division : divisions()) {
    std::vector<int> times(static_cast<size_t>(division.whole.elements()));
    for (int p = 0; p < division.part.parts; ++p) {
      TensorPart part = division.part;
      part.part = p;
      CAPTURE(to_string(division.whole), part.by, part.parts, p, part.sections);
      const Shape held = held_shape(part, division.whole);
      Called called;
      for_runs(part, division.whole, 0, held.elements(), called.take());
      int64_t own = 0;
      for (const PartRun& run : called.runs) {
        own += run.count;
        for (int64_t i = 0; i < run.count; ++i) ++times[static_cast<size_t>(run.whole + i)];
      }
      CHECK(own_elements(part, division.whole) == own);
      const std::vector<int64_t> list = elements_in(part, division.whole);
      CHECK(same(called.runs, runs_in(list, [](int64_t, int64_t) { return true; })));
      for (size_t i = 0; i < list.size(); ++i)
        CHECK(whole_element(part, division.whole, static_cast<int64_t>(i)) == list[i]);
    }
    CHECK(times == std::vector<int>(times.size(), 1));
  }
}

TEST_CASE(
    "the runs of any range of a part's memory, or of the whole tensor, are those of its elements") {
  for (const Division& division : divisions())
    for (int p = 0; p < division.part.parts; ++p) {
      TensorPart part = division.part;
      part.part = p;
      const std::vector<int64_t> list = elements_in(part, division.whole);
      const auto held = static_cast<int64_t>(list.size()), all = division.whole.elements();
      bool right = true;
      for (int64_t begin = 0; begin <= held; ++begin)
        for (int64_t end = begin; end <= held; ++end) {
          Called called;
          for_runs(part, division.whole, begin, end - begin, called.take());
          right = right && same(called.runs, runs_in(list, [&](int64_t at, int64_t) {
                                  return at >= begin && at < end;
                                }));
        }
      for (int64_t begin = 0; begin <= all; ++begin)
        for (int64_t end = begin; end <= all; ++end) {
          Called called;
          for_runs_within(part, division.whole, begin, end - begin, called.take());
          right = right && same(called.runs, runs_in(list, [&](int64_t, int64_t at) {
                                  return at >= begin && at < end;
                                }));
        }
      CAPTURE(to_string(division.whole), part.by, part.parts, p, part.sections);
      CHECK(right);
    }
}

TEST_CASE("each part has the memory of the largest, and rows of padding at its end do not count") {
  const TensorPart rows{.by = By::rows, .parts = 3}, columns{.by = By::columns, .parts = 3};
  const auto at = [](TensorPart part, int p) {
    part.part = p;
    return part;
  };
  for (int p = 0; p < 3; ++p) {
    CHECK(held_shape(at(rows, p), {7, 5}) == Shape{3, 5});
    CHECK(held_shape(at(columns, p), {7, 5}) == Shape{7, 2});
    CHECK(held_shape(at(columns, p), {2, 3, 5}) == Shape{2, 3, 2});
    CHECK(held_elements(at(columns, p), {7, 5}) == 14);
  }
  CHECK(held_elements(at(rows, 0), {7, 5}) == 10);  // rows 0 and 1, 2 and 3, 4 to 6
  CHECK(held_elements(at(rows, 1), {7, 5}) == 10);
  CHECK(held_elements(at(rows, 2), {7, 5}) == 15);
  CHECK(held_elements(at(rows, 0), {2, 5}) == 0);
  const TensorPart qkv{.by = By::rows, .parts = 2, .part = 1, .sections = 3};
  CHECK(held_shape(qkv, {12, 5}) == Shape{6, 5});
  CHECK(held_elements(qkv, {12, 5}) == 30);
  CHECK(held_shape({}, {7, 5}) == Shape{7, 5});
  CHECK(held_shape({}, {}) == Shape{});
  CHECK(held_elements({}, {7, 5}) == 35);
}

TEST_CASE("a large tensor is divided without an overflow") {
  const int64_t columns = int64_t{1} << 60;
  const TensorPart last{.by = By::columns, .parts = 1000, .part = 999};
  Called called;
  for_runs(last, {2, columns}, 0, held_elements(last, {2, columns}), called.take());
  REQUIRE(called.runs.size() == 2);
  CHECK(called.runs[1].whole + called.runs[1].count == 2 * columns);
}

TEST_CASE("what cannot be divided is refused") {
  const auto error = [](const TensorPart& part, const Shape& whole) {
    const std::string text = division_error(part, whole);
    CHECK_THROWS_AS(held_shape(part, whole), InternalError);
    CHECK_THROWS_AS(held_elements(part, whole), InternalError);
    CHECK_THROWS_AS(for_runs(part, whole, 0, 1, [](const PartRun&) {}), InternalError);
    CHECK_THROWS_AS(for_runs_within(part, whole, 0, 1, [](const PartRun&) {}), InternalError);
    return text;
  };
  const TensorPart rows{.by = By::rows, .parts = 2}, columns{.by = By::columns, .parts = 2};
  CHECK_THAT(error(rows, {}), Contains("has no rows and columns"));
  CHECK_THAT(error(rows, {0, 4}), Contains("(0, 4) has no rows and columns"));
  CHECK_THAT(error(columns, {8}), Contains("the vector (8) has no columns"));
  CHECK_THAT(error({.by = By::rows, .parts = 2, .part = 2}, {8}), Contains("no part 2 of 2"));
  CHECK_THAT(error({.by = By::rows, .parts = 2, .part = -1}, {8}), Contains("no part -1 of 2"));
  CHECK_THAT(error({.by = By::rows, .parts = 0}, {8}), Contains("no part 0 of 0"));
  CHECK_THAT(error({.by = By::rows, .parts = 2, .sections = 3}, {9, 2}),
             Contains("3 sections of the rows of (9, 2) are not divided evenly among 2"));
  CHECK_THAT(error({.by = By::rows, .parts = 2, .sections = 5}, {9, 2}), Contains("5 sections"));
  CHECK_THAT(error({.by = By::rows, .parts = 2, .sections = 0}, {9, 2}), Contains("0 sections"));
  CHECK_THAT(error({.by = By::columns, .parts = 2, .sections = 3}, {9, 6}),
             Contains("in 3 sections, expected 1"));
  CHECK(division_error({}, {}).empty());
  CHECK(division_error(rows, {1}).empty());
}

}  // namespace
}  // namespace dstrain
