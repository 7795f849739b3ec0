#include "launcher/report/record/series.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace dstrain::report {

namespace {

// Returns the column of a picture in which `x` is.
size_t column_of(double x, double first, double last, size_t columns) {
  if (!(last > first)) return 0;
  const double part = (x - first) / (last - first) * static_cast<double>(columns);
  return static_cast<size_t>(std::clamp(part, 0.0, static_cast<double>(columns - 1)));
}

}  // namespace

void SeriesBuilder::close_column() {
  if (!open_) return;
  open_ = false;
  std::array<Point, 4> kept = {begin_, low_, high_, end_};
  if (low_.x > high_.x) std::swap(kept[1], kept[2]);
  for (const Point& point : kept) {
    const bool again = !series_.points.empty() && series_.points.back().x == point.x &&
                       series_.points.back().y == point.y;
    if (!again) series_.points.push_back(point);
  }
}

void SeriesBuilder::add(double x, double y) {
  if (!std::isfinite(y)) {
    close_column();
    if (!series_.points.empty() && !std::isnan(series_.points.back().y))
      series_.points.push_back({x, std::numeric_limits<double>::quiet_NaN()});
    return;
  }
  const Point point{x, y};
  if (series_.count == 0) series_.least = series_.most = point;
  if (y < series_.least.y) series_.least = point;
  if (y > series_.most.y) series_.most = point;
  ++series_.count;
  series_.sum += y;
  series_.last = y;
  const size_t column = column_of(x, first_, last_, columns_);
  if (open_ && column != column_) close_column();
  if (!open_) {
    open_ = true;
    column_ = column;
    begin_ = low_ = high_ = point;
  }
  if (y < low_.y) low_ = point;
  if (y > high_.y) high_ = point;
  end_ = point;
}

Series SeriesBuilder::take() {
  close_column();
  return std::move(series_);
}

Smoother::Smoother(double first, double last, size_t columns)
    : first_(first), last_(last), columns_(columns) {}

void Smoother::add(double x, double y) {
  Column& column = columns_[column_of(x, first_, last_, columns_.size())];
  column.x += x;
  column.y += y;
  ++column.count;
}

std::vector<Point> Smoother::take() const {
  std::vector<Column> filled;
  for (const Column& column : columns_)
    if (column.count > 0) filled.push_back(column);
  // Values so many columns away count an e-th.
  constexpr double kPartOfWidth = 1.0 / 80, kLeastReach = 1.5;
  const double reach = std::max(kPartOfWidth * static_cast<double>(filled.size()), kLeastReach);
  const double keep = std::exp(-1 / reach);
  // The weighted sums of the columns before each, and of it and those behind it.
  std::vector<Column> around(filled.size());
  Column sum;
  const auto pass = [&](size_t i, bool own) {
    sum.y *= keep;
    sum.count *= keep;
    around[i].y += sum.y + (own ? filled[i].y : 0);
    around[i].count += sum.count + (own ? filled[i].count : 0);
    sum.y += filled[i].y;
    sum.count += filled[i].count;
  };
  for (size_t i = 0; i < filled.size(); ++i) pass(i, true);
  sum = {};
  for (size_t i = filled.size(); i > 0; --i) pass(i - 1, false);
  std::vector<Point> points;
  points.reserve(filled.size());
  for (size_t i = 0; i < filled.size(); ++i)
    points.push_back({filled[i].x / filled[i].count, around[i].y / around[i].count});
  return points;
}

double median(std::vector<double>& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace dstrain::report
