#include "launcher/doctor/cores.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>

#include "launcher/placement/ranges_text.h"
#include "launcher/placement/system_numbers.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

std::vector<int> cores_listed_in(const fs::path& file) {
  std::string text;
  std::ifstream(file) >> text;
  return parse_cores(text).value_or(std::vector<int>{});
}

// Returns how many sockets the cores are in; 1 if the kernel does not tell.
int sockets_of(const std::vector<int>& cores, const fs::path& system) {
  std::set<int64_t> sockets;
  for (const int core : cores)
    sockets.insert(
        system_number(system / fmt::format("cpu/cpu{}/topology/physical_package_id", core))
            .value_or(0));
  return std::max(1, static_cast<int>(sockets.size()));
}

// Returns how many NUMA nodes have some of the cores; 1 if the kernel does not tell.
int nodes_of(const std::vector<int>& cores, const fs::path& system) {
  int nodes = 0;
  for (const int node : cores_listed_in(system / "node/online")) {
    const std::vector<int> there =
        cores_listed_in(system / fmt::format("node/node{}/cpulist", node));
    nodes += std::ranges::any_of(there,
                                 [&](int core) { return std::ranges::binary_search(cores, core); })
                 ? 1
                 : 0;
  }
  return std::max(1, nodes);
}

}  // namespace

int CoreFacts::count() const {
  const int cores = static_cast<int>(usable.size());
  return quota > 0 ? std::min(cores, quota) : cores;
}

std::string cpuinfo_field(const fs::path& root, const std::string& field) {
  std::ifstream in(root / "proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {  // "model name\t: ..."
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t end = line.find_last_not_of(" \t", colon - 1);
    if (colon == 0 || end == std::string::npos || line.substr(0, end + 1) != field) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

CoreFacts core_facts(const fs::path& root, const std::vector<int>& usable) {
  const fs::path system = root / "sys/devices/system";
  CoreFacts facts;
  facts.processor = cpuinfo_field(root, "model name");
  facts.usable = usable;
  facts.online = cores_listed_in(system / "cpu/online");
  if (facts.online.empty()) facts.online = usable;
  facts.quota = cgroup_core_limit(root);
  facts.physical = static_cast<int>(physical_cores(usable, system.string()).size());
  facts.sockets = sockets_of(usable, system);
  facts.nodes = nodes_of(usable, system);
  return facts;
}

MachineLines core_lines(const CoreFacts& facts, int ranks, int threads) {
  const int usable = static_cast<int>(facts.usable.size()), count = facts.count();
  const auto online = static_cast<int64_t>(facts.online.size());
  MachineLines lines;
  const auto note = [&lines](const std::string& text, const std::string& remedy) {
    lines.push_back({.subject = "cores", .health = Health::note, .text = text, .remedy = remedy});
  };
  lines.push_back(
      {.subject = "processor",
       .text = facts.processor.empty() ? "the kernel does not tell its name" : facts.processor,
       .values = {{"name", facts.processor}}});
  lines.push_back(
      {.subject = "cores",
       .text = fmt::format("a run may use {} ({}) of {}: {}, {}, {}", counted(usable, "core"),
                           ranges_text(facts.usable), online,
                           facts.physical < usable
                               ? fmt::format("hardware threads of {} physical ones", facts.physical)
                               : "one hardware thread each",
                           counted(facts.sockets, "socket"), counted(facts.nodes, "NUMA node")),
       .values = {{"usable", usable},
                  {"online", online},
                  {"quota", facts.quota},
                  {"physical", facts.physical},
                  {"sockets", facts.sockets},
                  {"numa_nodes", facts.nodes}}});
  if (usable < online)
    note(
        fmt::format("the affinity of this process leaves out {}", counted(online - usable, "core")),
        "where all are wanted: ask for more cores of the job or the container (cpuset), or begin "
        "without taskset");
  if (facts.quota > 0 && facts.quota < usable)
    note(
        fmt::format("the CPU quota of a control group is that of {}", counted(facts.quota, "core")),
        "where more are wanted: raise it (cpu.max; docker run --cpus)");
  if (ranks > count)
    note(fmt::format("{} share {}", counted(ranks, "rank"), counted(count, "core")),
         fmt::format("--num_gpus {} gives each rank a core: a rank that waits for one holds up all "
                     "others",
                     count));
  else if (threads * ranks > count)
    note(fmt::format("{} of {} each (OMP_NUM_THREADS) share {}", counted(ranks, "rank"),
                     counted(threads, "thread"), counted(count, "core")),
         "leave OMP_NUM_THREADS out: ranks then share the cores evenly");
  if (facts.nodes > 1 && ranks > 1)
    note(fmt::format("the cores are in {} NUMA nodes", facts.nodes),
         "--bind_cores_to_rank keeps the memory of a rank on the node of its cores");
  return lines;
}

}  // namespace dstrain
