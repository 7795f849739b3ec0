#include "runtime/comm/topology.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain {

Topology::Topology(std::vector<Axis> axes) : axes_(std::move(axes)) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    check(axes_[i].size >= 1, "axis '{}' has {} ranks", axes_[i].name, axes_[i].size);
    for (size_t j = 0; j < i; ++j)
      check(axes_[j].name != axes_[i].name, "two axes are called '{}'", axes_[i].name);
  }
}

int Topology::size() const {
  int product = 1;
  for (const Axis& axis : axes_) product *= axis.size;
  return product;
}

int Topology::size_of(std::string_view axis) const {
  for (const Axis& a : axes_)
    if (a.name == axis) return a.size;
  return 1;
}

std::vector<int> Topology::coordinates(int rank) const {
  check(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
  std::vector<int> result(axes_.size());
  for (size_t i = axes_.size(); i-- > 0; rank /= axes_[i].size) result[i] = rank % axes_[i].size;
  return result;
}

int Topology::coordinate(int rank, std::string_view axis) const {
  const std::vector<int> all = coordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == axis) return all[i];
  return 0;
}

int Topology::rank_at(std::span<const int> coordinates) const {
  check(coordinates.size() == axes_.size(), "{} coordinates for {} axes", coordinates.size(),
        axes_.size());
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    check(coordinates[i] >= 0 && coordinates[i] < axes_[i].size, "coordinate {} on axis '{}' of {}",
          coordinates[i], axes_[i].name, axes_[i].size);
    rank = rank * axes_[i].size + coordinates[i];
  }
  return rank;
}

std::vector<int> Topology::group_of(int rank, std::span<const std::string_view> axes) const {
  const std::vector<int> mine = coordinates(rank);
  std::vector<int> group;
  for (int other = 0; other < size(); ++other) {
    const std::vector<int> theirs = coordinates(other);
    bool member = true;
    for (size_t i = 0; i < axes_.size(); ++i)
      member = member && (mine[i] == theirs[i] ||
                          std::find(axes.begin(), axes.end(), axes_[i].name) != axes.end());
    if (member) group.push_back(other);
  }
  return group;
}

std::vector<int> Topology::group_of(int rank, std::string_view axis) const {
  return group_of(rank, {&axis, 1});
}

std::vector<std::vector<int>> Topology::groups(std::span<const std::string_view> axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < size(); ++rank)
    if (std::vector<int> group = group_of(rank, axes); group.front() == rank)
      all.push_back(std::move(group));
  return all;
}

std::vector<std::vector<int>> Topology::groups(std::string_view axis) const {
  return groups({&axis, 1});
}

}  // namespace dstrain
