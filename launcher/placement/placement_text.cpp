#include "launcher/placement/placement_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/placement/ranges_text.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

std::string placement_text(const Placement& placement) {
  size_t host_width = 4, slots_width = 5;  // those of the headings
  for (const HostRanks& host : placement.hosts) {
    host_width = std::max(host_width, host.host.size());
    slots_width = std::max(slots_width, ranges_text(host.slots).size());
  }
  std::string text = fmt::format("{:{}}  {:{}}  ranks\n", "host", host_width, "slots", slots_width);
  for (const HostRanks& host : placement.hosts)
    text += fmt::format("{:{}}  {:{}}  {}\n", host.host, host_width, ranges_text(host.slots),
                        slots_width, ranges_text(host.all_ranks()));
  return text + fmt::format("{}, {}\n",
                            counted(static_cast<int64_t>(placement.hosts.size()), "host"),
                            counted(placement.ranks(), "rank"));
}

std::string placement_json(const Placement& placement) {
  nlohmann::json list = nlohmann::json::array();
  for (const HostRanks& host : placement.hosts)
    list.push_back({{"host", host.host}, {"slots", host.slots}, {"ranks", host.all_ranks()}});
  return list.dump() + "\n";
}

}  // namespace dstrain
