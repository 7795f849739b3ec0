#include "launcher/doctor/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "launcher/placement/system_numbers.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStrictOvercommit = 2;
// What Open MPI 4.1 makes in /dev/shm for each rank, and what NCCL's manual asks a container to have there.
constexpr int64_t kShmOfRank = int64_t{4} << 20, kShmOfGpus = int64_t{1} << 30;

MachineLine available_line(const MemoryFacts& facts) {
  constexpr int64_t little = 10;
  MachineLine line{.subject = "memory",
                   .text = fmt::format("{} available of {} ({})", size_text(facts.available.bytes),
                                       size_text(facts.physical), facts.available.source),
                   .values = {{"physical", facts.physical},
                              {"available", facts.available.bytes},
                              {"source", facts.available.source}}};
  if (facts.available.bytes < facts.physical / little) {
    line.health = Health::note;
    line.remedy =
        "end what else takes memory (ps ax --sort -rss -o pid,rss,args), or raise the limit of the "
        "control group if that is what is used up";
  }
  return line;
}

MachineLine swap_line(const MemoryFacts& facts) {
  return {.subject = "swap",
          .text = facts.swap == 0
                      ? "none"
                      : fmt::format("{} free of {}; what a run needs must be available without it",
                                    size_text(facts.free_swap), size_text(facts.swap)),
          .values = {{"total", facts.swap}, {"free", facts.free_swap}}};
}

MachineLine overcommit_line(const MemoryFacts& facts) {
  MachineLine line{.subject = "overcommit",
                   .text = fmt::format("vm.overcommit_memory is {}: memory counts when it is used",
                                       facts.overcommit),
                   .values = {{"mode", facts.overcommit}}};
  if (facts.overcommit == kStrictOvercommit) {
    line.health = Health::note;
    line.text = fmt::format(
        "vm.overcommit_memory is 2: memory counts when it is reserved, and {} may still be",
        size_text(std::max<int64_t>(0, facts.commit_limit - facts.committed)));
    line.remedy =
        "sysctl vm.overcommit_memory=0: ranks reserve more addresses than they use, and are forks "
        "of one process, whose memory would count once for each";
    line.values["commit_limit"] = facts.commit_limit;
    line.values["committed"] = facts.committed;
  }
  return line;
}

MachineLine shm_line(const MemoryFacts& facts, int ranks, int gpus) {
  const int64_t wanted = gpus > 1 ? std::max(kShmOfGpus, ranks * kShmOfRank) : ranks * kShmOfRank;
  constexpr const char* users =
      "Open MPI (--launcher openmpi, several hosts) and NCCL use it; ranks that dstrain starts on "
      "one machine do not";
  MachineLine line{.subject = "/dev/shm"};
  if (!facts.shm) {
    line.text = fmt::format("it is not there; {}", users);
    line.values = {{"total", nullptr}, {"free", nullptr}};
  } else {
    line.text =
        fmt::format("{} free of {}; {}", size_text(*facts.free_shm), size_text(*facts.shm), users);
    line.values = {{"total", *facts.shm}, {"free", *facts.free_shm}};
  }
  if (facts.free_shm.value_or(0) < wanted) {
    line.health = Health::note;
    line.remedy = fmt::format(
        "give it {} or more where they are used: mount -o remount,size=8g /dev/shm, or docker run "
        "--shm-size 8g",
        size_text(wanted));
  }
  return line;
}

}  // namespace

MemoryFacts memory_facts(const fs::path& root) {
  const auto bytes = [meminfo = root / "proc/meminfo"](const char* field) {
    constexpr int64_t kilobyte = 1024;
    return system_number(meminfo, field).value_or(0) * kilobyte;
  };
  MemoryFacts facts;
  facts.physical = bytes("MemTotal:");
  facts.swap = bytes("SwapTotal:");
  facts.free_swap = bytes("SwapFree:");
  facts.commit_limit = bytes("CommitLimit:");
  facts.committed = bytes("Committed_AS:");
  facts.available = available_memory(root);
  facts.overcommit = system_number(root / "proc/sys/vm/overcommit_memory").value_or(0);
  std::error_code missing;
  const fs::space_info shm = fs::space(root / "dev/shm", missing);
  if (!missing) {
    facts.shm = static_cast<int64_t>(shm.capacity);
    facts.free_shm = static_cast<int64_t>(shm.available);
  }
  return facts;
}

MachineLines memory_lines(const MemoryFacts& facts, int ranks, int gpus) {
  return {available_line(facts), swap_line(facts), overcommit_line(facts),
          shm_line(facts, ranks, gpus)};
}

}  // namespace dstrain
