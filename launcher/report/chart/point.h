// Point: a place of a line.
#pragma once

namespace dstrain::report {

struct Point {
  double x = 0;  // the step, or what else the picture has on its horizontal axis
  double y = 0;  // NaN: the line is interrupted here
};

}  // namespace dstrain::report
