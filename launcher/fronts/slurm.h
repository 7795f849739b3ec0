// Slurm: the job of this process, as environment variables describe it. The tasks of srun are ranks as those of mpirun
// are, over PMIx. A single process in a batch script starts the ranks itself. Only start_by_srun() calls Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// A task of a job step that srun started.
struct SlurmTask {
  int rank = 0;
  int ranks = 1;
  int rank_on_host = 0;
  int ranks_on_host = 1;
  bool pmix = false;  // srun provides PMIx, by which tasks find each other
};

// The Slurm job that this process belongs to, as Slurm's environment variables describe it.
struct SlurmJob {
  std::string id;
  int restarts = 0;  // how often the job was requeued, or restarted after a node failed
  int nodes = 1;
  int tasks = 1;              // of the job
  int cores_here = 0;         // of this node; 0: unknown
  bool on_its_nodes = false;  // false: this process runs outside the allocation, as after salloc
  std::optional<SlurmTask> task;
};

// Returns the value of an environment variable, or null.
using Variables = std::function<const char*(const char* name)>;

// Returns the job that this process is in, if any. Throws UserError, which names the variable, for a malformed value.
std::optional<SlurmJob> slurm_job();
std::optional<SlurmJob> slurm_job(const Variables& variable);

// Returns the tasks of each node from Slurm's text: 2,2,2,1 for "2(x3),1". Throws UserError, which names the variable.
std::vector<int> slurm_counts(const std::string& variable, const std::string& text);

// Sets the environment variables in which mpirun tells a rank its place. Must be called before other threads exist.
// Throws UserError if srun was started without PMIx.
void export_task_place(const SlurmTask& task);

// Returns the srun command that starts `ranks` copies of `program` on the job's nodes: as many on each node, or, where
// `each` is 0, as Slurm places them.
std::vector<std::string> srun_words(int ranks, int each,
                                    const std::vector<std::string>& launcher_args,
                                    const std::vector<std::string>& program);

// Replaces this process by srun with these words. Throws UserError if there is no srun.
[[noreturn]] void start_by_srun(std::vector<std::string> words);

// The share of the usable cores that a rank gets, and its number of threads. Usable are the cores that the rank's
// process may use: Slurm may bind each task to its own cores, bind the whole job, or leave all cores of the machine
// usable.
struct CoreUse {
  int rank_on_host;
  int ranks_on_host;  // that share the usable cores; 1: all are this rank's
  int threads;        // 0: one for each core of the share
  bool bound;         // whether the rank is bound to its share
};
// Returns the core use of a rank if its process may use `usable` cores.
CoreUse core_use(const SlurmJob& job, int rank_on_host, int ranks_on_host, int usable);

}  // namespace dstrain
