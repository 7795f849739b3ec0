#include "launcher/report/record/series.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>

namespace dstrain::report {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("a series keeps the extremes of every column and no more points than four a column") {
  constexpr size_t kColumns = 50;
  constexpr int kValues = 100'000;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> values(kValues);
  for (double& value : values) value = normal(random);
  values[12'345] = 1000;  // outliers of a single step
  values[67'890] = -1000;
  SeriesBuilder builder(0, kValues - 1, kColumns);
  for (int i = 0; i < kValues; ++i) builder.add(i, values[static_cast<size_t>(i)]);
  const Series series = builder.take();
  CHECK(series.points.size() <= 4 * kColumns);
  std::multiset<double> kept;
  for (const Point& point : series.points) kept.insert(point.y);
  for (int column = 0; column < static_cast<int>(kColumns); ++column) {
    const auto begin = values.begin() + column * kValues / static_cast<int>(kColumns) + 1;
    const auto end = values.begin() + (column + 1) * kValues / static_cast<int>(kColumns) - 1;
    CHECK(kept.contains(*std::min_element(begin, end)));
    CHECK(kept.contains(*std::max_element(begin, end)));
  }
  CHECK(series.most.y == 1000);
  CHECK(series.most.x == 12'345);
  CHECK(series.least.y == -1000);
  CHECK(series.least.x == 67'890);
  CHECK(series.count == kValues);
  CHECK(series.last == values.back());
  CHECK(std::ranges::is_sorted(series.points, {}, &Point::x));
  CHECK(series.points.front().y == values.front());
  CHECK(series.points.back().y == values.back());
}

TEST_CASE("a short series is kept whole, and what is no number interrupts it") {
  SeriesBuilder builder(1, 6, 100);
  for (const auto& [x, y] :
       {std::pair{1., kNan}, {2., 5.}, {3., kNan}, {4., kNan}, {5., 7.}, {6., 6.}})
    builder.add(x, y);
  const Series series = builder.take();
  REQUIRE(series.points.size() == 4);
  CHECK(series.points[0].y == 5);
  CHECK(std::isnan(series.points[1].y));
  CHECK(series.points[2].y == 7);
  CHECK(series.points[3].y == 6);
  CHECK(series.count == 3);
  CHECK(series.mean() == 6);
}

TEST_CASE("a series of one value, or none") {
  SeriesBuilder one(3, 3, 10);
  one.add(3, 2);
  CHECK(one.take().points.size() == 1);
  SeriesBuilder none(0, 0, 10);
  CHECK(none.take().empty());
}

TEST_CASE("a smooth line of a constant is that constant, and one of a slope does not lag behind") {
  Smoother constant(0, 999, 100), slope(0, 999, 100);
  for (int i = 0; i < 1000; ++i) {
    constant.add(i, 3);
    slope.add(i, i);
  }
  for (const Point& point : constant.take()) CHECK(point.y == Approx(3));
  const std::vector<Point> points = slope.take();
  REQUIRE(points.size() == 100);
  CHECK(points[50].y == Approx(points[50].x).epsilon(0.001));
}

TEST_CASE("the median is the middle value, or the mean of two") {
  std::vector<double> odd = {3, 1, 2}, even = {4, 1, 3, 2}, none;
  CHECK(median(odd) == 2);
  CHECK(median(even) == 2.5);
  CHECK(std::isnan(median(none)));
}

}  // namespace
}  // namespace dstrain::report
