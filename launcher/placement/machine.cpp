#include "launcher/placement/machine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <vector>

#include "launcher/placement/system_numbers.h"
#include "runtime/core/error.h"
#include "runtime/core/files/cgroup.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// The names of one cgroup version's files.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat
  const char* kills_file;
};

constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file", "memory.oom_control"};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "inactive_file", "memory.events"};

constexpr const char* kKills = "oom_kill";  // in a kills_file, and in /proc/vmstat

struct Cgroup {
  fs::path directory;
  const CgroupFiles* files;
};

// Returns the memory cgroups of this process, innermost first.
std::vector<Cgroup> cgroups(const fs::path& root) {
  std::vector<Cgroup> found;
  for (const CgroupDirectory& group : cgroup_directories(root, "memory"))
    found.push_back({group.path, group.version2 ? &kVersion2 : &kVersion1});
  return found;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_this_machine(const std::string& host) {
  const std::string own = host_name();
  return host == own || host == own.substr(0, own.find('.')) || host == "localhost" ||
         host == "127.0.0.1";
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  return fmt::format("{} {} {}", boot, fs::read_symlink("/proc/self/ns/net", none).string(),
                     host_name());
}

MemoryOffer available_memory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  const auto kilobytes = system_number(meminfo, "MemAvailable:");
  if (!kilobytes) fail_run("cannot read MemAvailable from {}", meminfo.string());
  MemoryOffer offer{*kilobytes * 1024, "MemAvailable in /proc/meminfo"};
  for (const Cgroup& group : cgroups(root)) {
    const auto limit = system_number(group.directory / group.files->limit);
    const auto usage = system_number(group.directory / group.files->usage);
    if (!limit || !usage) continue;
    // Cached pages of files count as used, but the kernel frees them when memory is needed.
    const int64_t reclaimable =
        system_number(group.directory / "memory.stat", group.files->reclaimable).value_or(0);
    const int64_t left = std::max<int64_t>(*limit - (*usage - std::min(reclaimable, *usage)), 0);
    if (left < offer.bytes)
      offer = {left, fmt::format("the memory limit of {}, {}", group.directory.string(),
                                 bytes_text(static_cast<double>(*limit)))};
  }
  return offer;
}

fs::path kill_counter(pid_t pid, const fs::path& root) {
  // The innermost group that counts: a group around it counts those of other groups, too.
  for (const CgroupDirectory& group : cgroup_directories(root, "memory", std::to_string(pid))) {
    const fs::path file = group.path / (group.version2 ? kVersion2 : kVersion1).kills_file;
    if (system_number(file, kKills)) return file;
  }
  std::error_code none;
  const fs::path mount = root / "sys/fs/cgroup", machine = root / "proc/vmstat";
  std::ifstream controllers(mount / "cgroup.controllers");
  const bool has_groups = fs::exists(mount / "memory", none) ||
                          std::find(std::istream_iterator<std::string>(controllers), {},
                                    "memory") != std::istream_iterator<std::string>();
  return !has_groups && system_number(machine, kKills) ? machine : fs::path();
}

int64_t kills_in(const fs::path& counter) {
  return system_number(counter, kKills).value_or(0);
}

}  // namespace dstrain
