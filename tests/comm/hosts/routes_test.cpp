// Follows the routes of windows: every message that a host sends is one that another host receives, and a sum
// holds every rank once, in rank order.
#include "runtime/comm/hosts/routes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <utility>
#include <vector>

namespace dstrain {
namespace {

using Sum = std::vector<int>;  // the ranks in it, in the order they were added

const std::vector<std::vector<int>> kWorlds = {{0, 1},
                                               {0, 0, 1, 1},
                                               {0, 1, 0, 1},
                                               {0, 0, 0, 1},
                                               {0, 1, 1, 1},
                                               {0, 1, 2},
                                               {0, 1, 1, 2},
                                               {0, 0, 1, 1, 2, 2},
                                               {0, 1, 1, 0, 2, 2},
                                               {0, 0, 1, 1, 1, 2, 3},
                                               {0, 1, 2, 3, 4},
                                               {0, 0, 0, 0, 1, 1, 1, 1}};

// Follows one window; returns what each host ends up with.
std::map<int, Sum> follow(const HostMap& hosts, const std::vector<Leg>& legs) {
  std::map<std::pair<int, int>, Sum> running;  // from, to
  std::map<int, Sum> results;
  size_t messages = 0;
  // Hosts act when what they wait for is there, whatever their order.
  std::vector<bool> added(legs.size());
  for (size_t round = 0; round < legs.size(); ++round) {
    for (int h = 0; h < hosts.hosts(); ++h) {
      const Leg& leg = legs[static_cast<size_t>(h)];
      const bool ready = leg.running_from < 0 || running.count({leg.running_from, h}) != 0;
      if (added[static_cast<size_t>(h)] || !ready || (!leg.finishes && leg.running_to < 0))
        continue;
      added[static_cast<size_t>(h)] = true;
      Sum sum = leg.running_from >= 0 ? running[{leg.running_from, h}] : Sum{};
      for (int r = 0; r < hosts.ranks(); ++r) {
        const int of = hosts.host_of(r);
        if (leg.takes_raw_from(of, h)) REQUIRE(legs[static_cast<size_t>(of)].raw_to == h);
        if (of == h || leg.takes_raw_from(of, h)) sum.push_back(r);
      }
      if (leg.finishes) results[h] = sum;
      if (leg.running_to >= 0) running[{h, leg.running_to}] = sum;
    }
  }
  for (size_t round = 0; round < legs.size(); ++round)
    for (int h = 0; h < hosts.hosts(); ++h) {
      const Leg& leg = legs[static_cast<size_t>(h)];
      if (leg.result_from < 0 || results.count(leg.result_from) == 0) continue;
      REQUIRE(legs[static_cast<size_t>(leg.result_from)].result_to == h);
      results[h] = results[leg.result_from];
    }
  // Every message that is sent is received.
  for (int h = 0; h < hosts.hosts(); ++h) {
    const Leg& leg = legs[static_cast<size_t>(h)];
    if (leg.raw_to >= 0)
      REQUIRE(legs[static_cast<size_t>(leg.raw_to)].takes_raw_from(h, leg.raw_to));
    if (leg.running_to >= 0) REQUIRE(legs[static_cast<size_t>(leg.running_to)].running_from == h);
    if (leg.result_to >= 0) REQUIRE(legs[static_cast<size_t>(leg.result_to)].result_from == h);
    messages += (leg.raw_to >= 0) + (leg.running_to >= 0) + (leg.result_to >= 0);
  }
  REQUIRE(messages >= legs.size() - 1);
  return results;
}

template <class LegOf>
std::map<int, Sum> follow(const HostMap& hosts, LegOf leg_of) {
  std::vector<Leg> legs;
  for (int h = 0; h < hosts.hosts(); ++h) legs.push_back(leg_of(h));
  return follow(hosts, legs);
}

TEST_CASE("a sum is made of every rank once, in rank order, and reaches every host") {
  for (const std::vector<int>& world : kWorlds)
    for (const int ratio : {1, 2}) {
      const HostMap hosts(world);
      const Routes routes(hosts, ratio, false);
      Sum all;
      for (int r = 0; r < hosts.ranks(); ++r) all.push_back(r);
      for (int64_t window = 0; window < 40; ++window) {
        const auto results =
            follow(hosts, [&](int h) { return routes.of_sum(h, window, Routes::kAllHosts); });
        for (int h = 0; h < hosts.hosts(); ++h) REQUIRE(results.at(h) == all);
      }
    }
}

TEST_CASE("a scattered sum reaches the host that needs it") {
  for (const std::vector<int>& world : kWorlds)
    for (const int ratio : {1, 2}) {
      const HostMap hosts(world);
      const Routes routes(hosts, ratio, true);
      Sum all;
      for (int r = 0; r < hosts.ranks(); ++r) all.push_back(r);
      for (int64_t window = 0; window < 20; ++window)
        for (int needed_by = 0; needed_by < hosts.hosts(); ++needed_by) {
          const auto leg = [&](int h) { return routes.of_sum(h, window, needed_by); };
          REQUIRE(follow(hosts, leg).at(needed_by) == all);
          for (int h = 0; h < hosts.hosts(); ++h) REQUIRE(leg(h).keeps == (h == needed_by));
        }
    }
}

TEST_CASE("a copy goes once over each link, round the hosts") {
  const HostMap hosts(std::vector<int>{0, 0, 1, 2, 3});
  for (int source = 0; source < hosts.hosts(); ++source) {
    std::vector<Leg> legs;
    for (int h = 0; h < hosts.hosts(); ++h) legs.push_back(leg_of_copy(hosts, h, source));
    REQUIRE(follow(hosts, legs).size() == 4);
    REQUIRE(std::count_if(legs.begin(), legs.end(),
                          [](const Leg& leg) { return leg.result_to >= 0; }) == 3);
  }
}

// In bytes of the whole tensor.
double busiest(std::vector<int> world, int ratio, bool scattered) {
  const HostMap hosts(world);
  return Routes(hosts, ratio, scattered).busiest_link();
}

TEST_CASE(
    "two hosts move a f32 sum as a ring would, and less of a 16-bit one than either way alone") {
  for (const auto& world : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}})
    REQUIRE(busiest(world, 1, false) == 1);
  REQUIRE(busiest({0, 1}, 2, false) == 1);
  REQUIRE(busiest({0, 0, 1, 1}, 2, false) == 1.5);
  REQUIRE(busiest({0, 0, 0, 0, 1, 1, 1, 1}, 2, false) == 1.75);
  REQUIRE(busiest({0, 0, 1, 1}, 1, true) == 0.75);
}

TEST_CASE("more hosts never move more than twice a f32 sum where ranks are consecutive") {
  REQUIRE(busiest({0, 1, 2, 3}, 1, false) == 1.5);  // as a ring
  REQUIRE(busiest({0, 0, 1, 1, 2, 2}, 1, false) <= 2);
  REQUIRE(busiest({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, 1, false) <= 2);
}

TEST_CASE("hosts whose ranks take turns exchange every rank's elements") {
  REQUIRE(busiest({0, 1, 0, 1}, 1, false) == 1.5);
}

TEST_CASE("a large world is counted quickly") {
  std::vector<int> world;
  for (int r = 0; r < 1024; ++r) world.push_back(r / 8);
  REQUIRE(busiest(world, 1, false) <= 2);
  REQUIRE(busiest(world, 2, true) < 2.1);
}

}  // namespace
}  // namespace dstrain
