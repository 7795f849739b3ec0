// Topology: the world as a grid with named axes ("pipe", "data", ...). Pure arithmetic: no process, no
// network. Ranks count row-major, so the last axis holds neighbours (put the axis that talks most last).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

struct Axis {
  std::string name;
  int size = 1;
};

class Topology {
 public:
  // Outermost axis first. Throws InternalError on a repeated name or a size below 1.
  explicit Topology(std::vector<Axis> axes);

  int size() const;
  std::span<const Axis> axes() const { return axes_; }
  // 1 for an axis that the grid does not have: a rank is alone along it.
  int size_of(std::string_view axis) const;

  // One coordinate per axis, in the order of axes().
  std::vector<int> coordinates(int rank) const;
  int coordinate(int rank, std::string_view axis) const;
  int rank_at(std::span<const int> coordinates) const;

  // The ranks that differ from `rank` in the given axes at most, ascending; `rank` is one of them.
  std::vector<int> group_of(int rank, std::span<const std::string_view> axes) const;
  std::vector<int> group_of(int rank, std::string_view axis) const;
  // All such groups, each rank in exactly one, ordered by their first rank.
  std::vector<std::vector<int>> groups(std::span<const std::string_view> axes) const;
  std::vector<std::vector<int>> groups(std::string_view axis) const;

 private:
  std::vector<Axis> axes_;
};

}  // namespace dstrain
