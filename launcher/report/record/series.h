// Series: the values of a metric over the steps of a run, in no more points than a picture needs. Of each column of the
// picture the first, the least, the largest and the last value are kept, so that a line through the points covers the
// same pixels as one through all values, and no outlier is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "launcher/report/chart/point.h"

namespace dstrain::report {

// The points of a line, ascending in x, and what is known of all values that they stand for.
struct Series {
  std::vector<Point> points;
  int64_t count = 0;  // finite values
  double last = std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  Point least, most;  // meaningful where count > 0

  bool empty() const { return count == 0; }
  double mean() const { return sum / static_cast<double>(count); }
};

// Makes a Series of values that come one after the other, in memory that depends on the columns alone.
class SeriesBuilder {
 public:
  // `first` and `last`: between which all x lie.
  SeriesBuilder(double first, double last, size_t columns)
      : first_(first), last_(last), columns_(columns) {}

  // Adds a value; x must not descend. One that is not finite interrupts the line.
  void add(double x, double y);
  // Returns the series, after which the builder is spent.
  Series take();

 private:
  void close_column();

  double first_, last_;
  size_t columns_;
  Series series_;
  // The column that is being filled.
  size_t column_ = 0;
  bool open_ = false;
  Point begin_, low_, high_, end_;
};

// Makes a smooth line of values that come one after the other: the mean of the values around a place, in which those
// farther away count less by an exponential of the distance, on both sides, so that the line does not lag behind.
class Smoother {
 public:
  // As of SeriesBuilder.
  Smoother(double first, double last, size_t columns);

  // Adds a value, which is finite.
  void add(double x, double y);
  // Returns a point for each column that has values.
  std::vector<Point> take() const;

 private:
  struct Column {
    double x = 0, y = 0, count = 0;  // sums
  };
  double first_, last_;
  std::vector<Column> columns_;
};

// Returns the middle of the values, of two middle ones their mean; NaN if there are none. Reorders them.
double median(std::vector<double>& values);

}  // namespace dstrain::report
