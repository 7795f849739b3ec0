#include "runtime/core/cpu.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "runtime/core/error.h"
#include "runtime/core/files/cgroup.h"

namespace dstrain {
namespace {

constexpr int kMaxCores = 4096;

class CpuSet {
 public:
  CpuSet() : set_(CPU_ALLOC(kMaxCores)) { CPU_ZERO_S(bytes(), set_); }
  ~CpuSet() { CPU_FREE(set_); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  static size_t bytes() { return CPU_ALLOC_SIZE(kMaxCores); }
  cpu_set_t* get() { return set_; }
  void add(int core) { CPU_SET_S(static_cast<size_t>(core), bytes(), set_); }
  bool has(int core) const { return CPU_ISSET_S(static_cast<size_t>(core), bytes(), set_); }

 private:
  cpu_set_t* set_;
};

int quota_in_cores(double quota, double period) {
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>((quota + period - 1) / period));
}

int quota_of_version2(const std::filesystem::path& group) {
  std::string quota;
  double period = 0;
  std::ifstream file(group / "cpu.max");
  if (!(file >> quota >> period) || quota == "max") return 0;
  return quota_in_cores(std::atof(quota.c_str()), period);
}

int quota_of_version1(const std::filesystem::path& group) {
  double quota = 0, period = 0;
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? quota_in_cores(quota, period) : 0;
}

}  // namespace

std::vector<int> usable_cores() {
  CpuSet set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, CpuSet::bytes(), set.get()) == 0)
    for (int core = 0; core < kMaxCores; ++core)
      if (set.has(core)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

int cgroup_core_limit(const std::filesystem::path& root) {
  int least = 0;
  for (const CgroupDirectory& group : cgroup_directories(root, "cpu")) {
    const int limit =
        group.version2 ? quota_of_version2(group.path) : quota_of_version1(group.path);
    if (limit > 0) least = least == 0 ? limit : std::min(least, limit);
  }
  return least;
}

int usable_core_count() {
  const int cores = static_cast<int>(usable_cores().size());
  const int limit = cgroup_core_limit("/");
  return limit > 0 ? std::min(cores, limit) : cores;
}

int threads_per_rank(int ranks_on_host) {
  return std::max(1, usable_core_count() / std::max(1, ranks_on_host));
}

int threads_asked_for() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr || *text == 0) return 0;
  int threads = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, status] = std::from_chars(text, end, threads);
  // A comma begins the numbers of nested levels.
  if (status != std::errc() || (stop != end && *stop != ',') || threads < 1 || threads > kMaxCores)
    fail_user(
        "OMP_NUM_THREADS is \"{}\": expected the threads of a rank, from 1 to {}; where it is not "
        "set, ranks share the cores evenly",
        text, kMaxCores);
  return threads;
}

std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank_on_host, int ranks_on_host) {
  check(rank_on_host >= 0 && rank_on_host < ranks_on_host, "rank {} of {} on this host",
        rank_on_host, ranks_on_host);
  const auto count = static_cast<int>(cores.size());
  if (ranks_on_host > count) return cores;
  const int share = count / ranks_on_host;
  const auto first = cores.begin() + rank_on_host * share;
  return {first, rank_on_host + 1 == ranks_on_host ? cores.end() : first + share};
}

std::optional<std::vector<int>> parse_cores(std::string_view text) {
  std::vector<int> cores;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [stop, status] = std::from_chars(at, end, value);
    at = stop;
    return status == std::errc() && value >= 0 && value < kMaxCores;
  };
  for (bool more = true; more; more = at != end && *at++ == ',') {
    int first = 0;
    if (!number(first) || (!cores.empty() && first <= cores.back())) return std::nullopt;
    int last = first;
    if (at != end && *at == '-' && (++at, !number(last) || last < first)) return std::nullopt;
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (at == end) return cores;
  }
  return std::nullopt;
}

std::vector<int> physical_cores(const std::vector<int>& cores, const std::string& root) {
  std::vector<int> physical;
  std::set<std::string> seen;
  for (const int core : cores) {
    std::string siblings;
    std::ifstream file(fmt::format("{}/cpu/cpu{}/topology/thread_siblings_list", root, core));
    if (!(file >> siblings) || seen.insert(siblings).second) physical.push_back(core);
  }
  return physical;
}

std::optional<int> memory_node_of(const std::vector<int>& cores, const std::string& root) {
  std::string text;
  if (!(std::ifstream(root + "/node/online") >> text)) return std::nullopt;
  const auto nodes = parse_cores(text);
  if (!nodes || nodes->size() < 2) return std::nullopt;
  for (const int node : *nodes) {
    std::ifstream file(fmt::format("{}/node/node{}/cpulist", root, node));
    const auto there = file >> text ? parse_cores(text) : std::nullopt;
    if (there && std::includes(there->begin(), there->end(), cores.begin(), cores.end()))
      return node;
  }
  return std::nullopt;
}

bool prefer_memory_of(int node) {
  std::array<unsigned long, 16> mask{};  // NOLINT(google-runtime-int): the kernel's type
  constexpr size_t kBits = 8 * sizeof(mask[0]);
  const auto bit = static_cast<size_t>(node);
  if (bit >= mask.size() * kBits) return false;
  mask[bit / kBits] = 1UL << (bit % kBits);
  return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * kBits) == 0;
}

void bind_process(const std::vector<int>& cores) {
  CpuSet set;
  for (const int core : cores) set.add(core);
  if (::sched_setaffinity(0, CpuSet::bytes(), set.get()) != 0)
    fail_run("cannot bind a rank to its cores: {}", std::strerror(errno));
}

}  // namespace dstrain
