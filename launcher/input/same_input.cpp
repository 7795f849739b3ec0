#include "launcher/input/same_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "launcher/input/exchange_texts.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/ranges_text.h"

namespace dstrain {
namespace {

constexpr size_t kMostLines = 4, kMostParts = 6;

// A digest for gather_values(): each half fits a double exactly.
using Halves = std::array<double, 2>;

// Returns the digests of all ranks, by rank. Collective.
std::vector<Halves> digests_of_all(Communicator& comm, uint64_t mine) {
  const Halves halves = {static_cast<double>(mine >> 32U),
                         static_cast<double>(mine & 0xffff'ffffU)};
  std::vector<double> values(2 * static_cast<size_t>(comm.size()));
  comm.gather_values(halves, values);
  std::vector<Halves> all;
  for (size_t i = 0; i < values.size(); i += 2) all.push_back({values[i], values[i + 1]});
  return all;
}

// Returns for example "ranks 2-3 on node2"; without hosts if all ranks are on one.
std::string ranks_text(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranges_text(ranks));
  if (std::ranges::count(hosts, hosts.front()) == std::ssize(hosts)) return text;
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(hosts[static_cast<size_t>(rank)]);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{} on {}", text, fmt::join(names, ", "));
}

std::string joined(std::vector<std::string> parts) {
  const size_t all = parts.size();
  if (all > kMostParts) {
    parts.resize(kMostParts);
    parts.push_back(fmt::format("and {} more", all - kMostParts));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string difference_of_input(Communicator& comm, const InputFacts& facts) {
  const std::vector<Halves> digests = digests_of_all(comm, digest_of(facts));
  // Ranks with equal digests. The first group is rank 0's.
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto same = std::ranges::find_if(groups, [&](const std::vector<int>& group) {
      return digests[static_cast<size_t>(group.front())] == digests[static_cast<size_t>(rank)];
    });
    if (same == groups.end())
      groups.push_back({rank});
    else
      same->push_back(rank);
  }
  if (groups.size() <= 1) return "";
  const std::vector<std::string> hosts = gather_texts(comm, host_name());
  const std::string own = facts_text(facts);
  const InputFacts here = parse_facts(broadcast_text(comm, own, 0));
  std::string text;
  for (size_t i = 1; i < groups.size() && i <= kMostLines; ++i) {
    const InputFacts there = parse_facts(broadcast_text(comm, own, groups[i].front()));
    text += fmt::format("{}{} would compute another run than {}: {}", i == 1 ? "" : "\n",
                        ranks_text(groups[i], hosts), ranks_text({0}, hosts),
                        joined(differences(here, there)));
  }
  if (groups.size() > kMostLines + 1)
    text += fmt::format("\n  and {} more kinds of ranks differ", groups.size() - kMostLines - 1);
  return text;
}

}  // namespace dstrain
