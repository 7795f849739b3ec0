#include "launcher/placement_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

std::vector<int> ranks_of(const HostRanks& host) {
  std::vector<int> ranks(host.slots.size());
  std::iota(ranks.begin(), ranks.end(), host.first_rank);
  return ranks;
}

std::string count_text(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

std::string placement_text(const Placement& placement) {
  size_t host_width = 4, slots_width = 5;  // those of the headings
  for (const HostRanks& host : placement.hosts) {
    host_width = std::max(host_width, host.host.size());
    slots_width = std::max(slots_width, ranges_text(host.slots).size());
  }
  std::string text = fmt::format("{:{}}  {:{}}  ranks\n", "host", host_width, "slots", slots_width);
  for (const HostRanks& host : placement.hosts)
    text += fmt::format("{:{}}  {:{}}  {}\n", host.host, host_width, ranges_text(host.slots),
                        slots_width, ranges_text(ranks_of(host)));
  return text + fmt::format("{}, {}\n", count_text(placement.hosts.size(), "host"),
                            count_text(static_cast<size_t>(placement.ranks()), "rank"));
}

std::string placement_json(const Placement& placement) {
  nlohmann::json list = nlohmann::json::array();
  for (const HostRanks& host : placement.hosts)
    list.push_back({{"host", host.host}, {"slots", host.slots}, {"ranks", ranks_of(host)}});
  return list.dump() + "\n";
}

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", i == 0 ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace dstrain
