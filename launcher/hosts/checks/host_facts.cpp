#include "launcher/hosts/checks/host_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "launcher/connection/message.h"

namespace dstrain {

void from_json(const nlohmann::json& answer, HostFacts& facts) {
  constexpr int64_t any = std::numeric_limits<int64_t>::max();
  answer.at("version").get_to(facts.version);
  answer.at("program").get_to(facts.program);
  answer.at("time").get_to(facts.time);
  facts.cores = integer_member(answer, "cores", 0, any);
  facts.memory_bytes = integer_member(answer, "memory", 0, any);
  answer.at("memory_source").get_to(facts.memory_source);
  if (answer.contains("open_files"))
    facts.limits.open_files = integer_member(answer, "open_files", 0, any);
  if (answer.contains("processes"))
    facts.limits.processes = {integer_member(answer, "processes", 0, any),
                              answer.at("processes_source").get<std::string>()};
  facts.addresses = answer.value("addresses", facts.addresses);
  facts.identity = answer.value("identity", "");
  if (answer.contains("temporary")) answer.at("temporary").get_to(facts.room);
}

std::vector<ProcessLack> lacks_of(const HostFacts& facts, int64_t ranks, int64_t hosts) {
  const int64_t threads = std::max<int64_t>(1, facts.cores / std::max<int64_t>(1, ranks));
  std::vector<ProcessLack> found =
      lacks(facts.limits, process_needs(ranks, threads, hosts), "there");
  if (const std::string lack = lack_of_room(facts.room, ranks); !lack.empty())
    found.push_back({"temporary files", lack});
  return found;
}

std::string addresses_text(const HostFacts& facts) {
  std::string text;
  for (const InterfaceAddress& a : facts.addresses)
    text += fmt::format("{}{}/{}", text.empty() ? "" : ", ", a.address, a.prefix);
  return text.empty() ? "none" : text;
}

int64_t needed_open_files(int64_t others) {
  constexpr int64_t kBase = 64, kForEach = 8;  // pipes, sockets, libraries
  return kBase + kForEach * others;
}

}  // namespace dstrain
