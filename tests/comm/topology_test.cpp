#include "runtime/comm/topology.h"

#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Ranks = std::vector<int>;
using Groups = std::vector<std::vector<int>>;

TEST_CASE("ranks count along the last axis first") {
  const Topology grid({{"pipe", 2}, {"data", 3}, {"tensor", 2}});
  REQUIRE(grid.size() == 12);
  REQUIRE(grid.coordinates(0) == Ranks{0, 0, 0});
  REQUIRE(grid.coordinates(1) == Ranks{0, 0, 1});
  REQUIRE(grid.coordinates(9) == Ranks{1, 1, 1});
  REQUIRE(grid.coordinate(9, "data") == 1);
  REQUIRE(grid.size_of("data") == 3);
  for (int rank = 0; rank < grid.size(); ++rank)
    REQUIRE(grid.rank_at(grid.coordinates(rank)) == rank);
}

TEST_CASE("groups along an axis share all other coordinates") {
  const Topology grid({{"pipe", 2}, {"data", 3}, {"tensor", 2}});
  REQUIRE(grid.groups("tensor") == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}});
  REQUIRE(grid.groups("data") == Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}});
  REQUIRE(grid.groups("pipe") == Groups{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}});
  REQUIRE(grid.group_of(8, "data") == Ranks{6, 8, 10});
  const std::array<std::string_view, 2> both{"pipe", "tensor"};
  REQUIRE(grid.groups(both) == Groups{{0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}});
}

TEST_CASE("each rank is in one group of every axis") {
  const Topology grid({{"a", 3}, {"b", 1}, {"c", 5}});
  for (const char* axis : {"a", "b", "c"}) {
    std::multiset<int> seen;
    for (const Ranks& group : grid.groups(axis)) {
      REQUIRE(static_cast<int>(group.size()) == grid.size_of(axis));
      seen.insert(group.begin(), group.end());
    }
    REQUIRE(seen.size() == 15);
    REQUIRE(std::set<int>(seen.begin(), seen.end()).size() == 15);
  }
}

TEST_CASE("along an axis that is not there a rank is alone") {
  const Topology grid({{"data", 4}});
  REQUIRE(grid.size_of("expert") == 1);
  REQUIRE(grid.coordinate(3, "expert") == 0);
  REQUIRE(grid.group_of(2, "expert") == Ranks{2});
  REQUIRE(Topology({}).size() == 1);
  REQUIRE(Topology({}).groups("data") == Groups{{0}});
}

TEST_CASE("impossible grids and ranks are internal errors") {
  REQUIRE_THROWS_WITH(Topology({{"data", 0}}), "axis 'data' has 0 ranks");
  REQUIRE_THROWS_WITH(Topology({{"data", 2}, {"data", 2}}), "two axes are called 'data'");
  const Topology grid({{"data", 4}});
  REQUIRE_THROWS_WITH(grid.coordinates(4), "rank 4 of 4");
  REQUIRE_THROWS_WITH(grid.rank_at(Ranks{4}), "coordinate 4 on axis 'data' of 4");
  REQUIRE_THROWS_WITH(grid.rank_at(Ranks{}), "0 coordinates for 1 axes");
}

}  // namespace
}  // namespace dstrain
