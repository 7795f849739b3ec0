#include "runtime/core/cpu.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "runtime/core/error.h"

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
  std::string quota;
  double period = 0;
  if (std::ifstream v2(root / "cpu.max"); v2 >> quota >> period)
    return quota == "max" ? 0 : quota_in_cores(std::atof(quota.c_str()), period);
  double quota_us = 0;
  std::ifstream quota_file(root / "cpu/cpu.cfs_quota_us");
  std::ifstream period_file(root / "cpu/cpu.cfs_period_us");
  if (quota_file >> quota_us && period_file >> period) return quota_in_cores(quota_us, period);
  return 0;
}

int usable_core_count() {
  const int cores = static_cast<int>(usable_cores().size());
  const int limit = cgroup_core_limit("/sys/fs/cgroup");
  return limit > 0 ? std::min(cores, limit) : cores;
}

int threads_per_rank(int ranks_on_host) {
  return std::max(1, usable_core_count() / std::max(1, ranks_on_host));
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

int take_core_share(int rank_on_host, int ranks_on_host, int threads) {
  const std::vector<int> cores = usable_cores();
  if (threads <= 0) threads = threads_per_rank(ranks_on_host);
  CpuSet set;
  for (int core : cores_of_rank(cores, rank_on_host, ranks_on_host)) set.add(core);
  if (::sched_setaffinity(0, CpuSet::bytes(), set.get()) != 0)
    fail_run("cannot bind rank {} of this host to its cores: {}", rank_on_host,
             std::strerror(errno));
  ::omp_set_num_threads(threads);
  return threads;
}

}  // namespace dstrain
