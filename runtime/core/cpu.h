// Cores: which ones this process may use, and how the ranks of one host share them. Stands on Linux
// (affinity, cgroup quota) and OpenMP. Ranks start unbound (mpirun --bind-to none: a bare
// `mpirun -np 1` pins to one core) and then take their own share here.
//
// What the launcher exports to ranks that are programs, because libgomp reads it only at start-up (forks
// have the number of threads from bind_to_cores, and with one thread wait for none):
//   OMP_NUM_THREADS = threads_per_rank(ranks on the host)
//   OMP_WAIT_POLICY = passive where ranks > cores or a rank has one thread (else left alone), so that
//   no waiting thread holds a core that a peer needs; GOMP_SPINCOUNT stays at the policy's default.
//   OMP_PROC_BIND = false: the affinity below binds the rank, the kernel spreads its threads.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace dstrain {

// Ids of the cores in this process's affinity mask, ascending; never empty.
std::vector<int> usable_cores();

// Cores this process may keep busy: the mask's, at most the cgroup's CPU quota rounded up.
int usable_core_count();

// The CPU quota, in cores rounded up, of the cgroup whose files lie in `root` (version 2: cpu.max,
// version 1: cpu/cpu.cfs_quota_us); 0 where there is no limit.
int cgroup_core_limit(const std::filesystem::path& root);

// max(1, usable cores / ranks on this host).
int threads_per_rank(int ranks_on_host);

// The cores of rank `rank_on_host`: contiguous shares of equal size; all of them where
// ranks_on_host > cores (nobody is pinned then). The last rank also gets the cores left over.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank_on_host, int ranks_on_host);

// "0,2-4" as the kernel and DeepSpeed write cores: numbers and ranges separated by commas, ascending and
// apart. Nothing for any other text.
std::optional<std::vector<int>> parse_cores(std::string_view text);

// Those of `cores` that are not a further hardware thread of one before. `root`: of the kernel's files
// about the machine.
std::vector<int> physical_cores(const std::vector<int>& cores,
                                const std::filesystem::path& root = "/sys/devices/system");

// The NUMA node that has all of `cores`; nothing where they span several, or the machine has one node.
std::optional<int> memory_node_of(const std::vector<int>& cores,
                                  const std::filesystem::path& root = "/sys/devices/system");

// Lets this process's memory lie on `node` as long as that has some. False where the system refuses.
bool prefer_memory_of(int node);

// Binds this process to `cores` and sets OpenMP's thread count. Call it once, from the main thread,
// before any other thread exists. Throws RunError.
void bind_to_cores(const std::vector<int>& cores, int threads);

// Binds this process to its share and sets OpenMP's thread count; returns the thread count. Call it
// once, from the main thread, before any other thread exists. `threads` > 0 overrides the count.
int take_core_share(int rank_on_host, int ranks_on_host, int threads = 0);

}  // namespace dstrain
