// Slurm: what the environment says about the job that this process is in, and what follows from it.
// srun's tasks are ranks of a world like mpirun's (over PMIx); one process in a batch script starts the
// ranks itself. Stands on core alone. Invariant: nothing here talks to Slurm but start_by_srun().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// A task of a step of several: started by srun, one for each rank.
struct SlurmTask {
  int rank = 0;
  int ranks = 1;
  int rank_on_host = 0;
  int ranks_on_host = 1;
  bool pmix = false;  // srun has told it how to find the others
};

struct SlurmJob {
  std::string id;
  int restarts = 0;  // times that the job was requeued or its nodes failed
  int nodes = 1;
  int tasks = 1;              // as the job asked for them
  int cores_here = 0;         // of this node; 0: not said
  bool on_its_nodes = false;  // false: beside the allocation, as after salloc
  std::optional<SlurmTask> task;
};

// The value of an environment variable, or null.
using Variables = std::function<const char*(const char* name)>;

// The job that this process is in; nothing outside of one. Throws UserError naming the variable that
// does not say what Slurm says there.
std::optional<SlurmJob> slurm_job();
std::optional<SlurmJob> slurm_job(const Variables& variable);

// "2(x3),1" as Slurm writes the tasks of each node. Throws UserError naming the variable.
std::vector<int> slurm_counts(const std::string& variable, const std::string& text);

// Names the task's place in the world as mpirun does for its ranks. Before other threads exist. Throws
// UserError where srun was started without PMIx.
void take_place_in_world(const SlurmTask& task);

// The words that start `ranks` copies of `program` on the job's nodes.
std::vector<std::string> srun_words(int ranks, const std::vector<std::string>& launcher_args,
                                    const std::vector<std::string>& program);

// Becomes srun with these words. Throws UserError where there is none.
[[noreturn]] void start_by_srun(std::vector<std::string> words);

// How a rank uses the cores that its process sees, `usable` in number: Slurm may have bound each task
// to its own, have fenced the job in, or have left the whole machine visible.
struct CoreUse {
  int rank_on_host;
  int ranks_on_host;  // that share the visible cores between them; 1: they are this rank's
  int threads;        // 0: one for each core of the share
  bool bound;         // whether the rank is bound to its share
};
CoreUse core_use(const SlurmJob& job, int rank_on_host, int ranks_on_host, int usable);

}  // namespace dstrain
