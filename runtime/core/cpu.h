// CPU cores: which ones this process may use (affinity, cgroup quota), and how the ranks of a host share
// them. Ranks start unbound (mpirun --bind-to none, because `mpirun -np 1` binds to one core) and then bind
// themselves.
// OMP_NUM_THREADS says how many threads a rank has (runtime/core/threads). OMP_PROC_BIND, OMP_PLACES and
// GOMP_CPU_AFFINITY have no effect: the affinity set here binds the rank, and the kernel places its threads. A library
// of OpenMP would bind the first thread before main, and this file would take what is left for the whole machine: the
// program must not be linked with one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// Returns the ids of the cores in this process's affinity mask, ascending; never empty.
std::vector<int> usable_cores();

// Returns how many cores this process may keep busy: those of the mask, at most the cgroup's CPU quota
// rounded up.
int usable_core_count();

// Returns the smallest CPU quota, in cores rounded up, of the cgroups that this process is in (version 2: cpu.max,
// version 1: cpu.cfs_quota_us); 0 if there is no limit. `root` is the root of the file system, which tests replace.
int cgroup_core_limit(const std::filesystem::path& root);

// Returns max(1, usable cores / ranks on this host).
int threads_per_rank(int ranks_on_host);

// Returns the threads that OMP_NUM_THREADS asks for; 0 where it is not set. Throws UserError if it is no number of threads.
int threads_asked_for();

// Returns the cores of rank `rank_on_host`: contiguous shares of equal size, the remainder for the last
// rank. If ranks_on_host > cores, every rank gets all cores.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank_on_host, int ranks_on_host);

// Returns the cores in a text like "0,2-4" (the kernel's and DeepSpeed's notation): numbers and ranges
// separated by commas, ascending, without overlap. Nothing for any other text.
std::optional<std::vector<int>> parse_cores(std::string_view text);

// Returns one of `cores` per physical core: the first of its hardware threads. `root` is the kernel's
// directory of the machine.
std::vector<int> physical_cores(const std::vector<int>& cores,
                                const std::string& root = "/sys/devices/system");

// Returns the NUMA node that has all of `cores`; nothing if several nodes have them, or the machine has one
// node.
std::optional<int> memory_node_of(const std::vector<int>& cores,
                                  const std::string& root = "/sys/devices/system");

// Lets the kernel place this process's memory on NUMA node `node` while it has free memory. Returns false if
// the system refuses.
bool prefer_memory_of(int node);

// Binds this process to `cores`. Throws RunError.
void bind_process(const std::vector<int>& cores);

}  // namespace dstrain
