#include "runtime/comm/rendezvous/host_map.h"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

HostMap map_of(std::vector<int> labels) {
  return HostMap(labels);
}

std::vector<int> ranks_of(const HostMap& map, int host) {
  return {map.ranks_of(host).begin(), map.ranks_of(host).end()};
}

TEST_CASE("hosts are numbered by their first ranks") {
  const HostMap map = map_of({7, 7, 3, 7, 3, 9});
  REQUIRE(map.ranks() == 6);
  REQUIRE(map.hosts() == 3);
  REQUIRE(ranks_of(map, 0) == std::vector<int>{0, 1, 3});
  REQUIRE(ranks_of(map, 1) == std::vector<int>{2, 4});
  REQUIRE(ranks_of(map, 2) == std::vector<int>{5});
  REQUIRE(map.host_of(3) == 0);
  REQUIRE(map.index_of(3) == 2);
  REQUIRE(map.index_of(4) == 1);
}

TEST_CASE("ranks are consecutive where no host's are interrupted") {
  REQUIRE(map_of({5}).consecutive());
  REQUIRE(map_of({5, 5, 1, 2, 2}).consecutive());
  REQUIRE_FALSE(map_of({0, 1, 0}).consecutive());
}

TEST_CASE("there are as many lanes as ranks on the largest host, and each rank serves one") {
  const HostMap map = map_of({0, 0, 0, 1, 1});
  REQUIRE(map.lanes() == 3);
  for (int lane = 0; lane < 3; ++lane) REQUIRE(map.lane_rank(0, lane) == lane);
  REQUIRE(map.lane_rank(1, 0) == 3);
  REQUIRE(map.lane_rank(1, 1) == 4);
  REQUIRE(map.lane_rank(1, 2) == 3);
}

TEST_CASE("a world has a rank at least") {
  REQUIRE_THROWS_AS(map_of({}), InternalError);
}

}  // namespace
}  // namespace dstrain
