#include "launcher/fronts/slurm_front.h"

#include <algorithm>

#include "launcher/input/output_folder.h"
#include "launcher/process/program_path.h"
#include "launcher/ranks/option_words.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"

namespace dstrain {
namespace {

// Returns the step of the checkpoint in an output directory that the Slurm job would go on from; nothing if it is not its
// own.
std::optional<int64_t> step_saved_by(const SlurmJob& job, const std::string& output) {
  try {
    const CheckpointInfo checkpoint = find_checkpoint(output);
    if (checkpoint.label.lineage.job == job.id) return checkpoint.label.step;
  } catch (const UserError&) {  // there is no complete checkpoint
  }
  return std::nullopt;
}

}  // namespace

std::optional<SlurmJob> slurm_front(const LaunchOptions& options) {
  const bool forced = options.front == Front::slurm;
  if (options.no_ssh) return std::nullopt;
  if (!forced && (options.front != Front::automatic || !options.hosts.hostfile.empty()))
    return std::nullopt;
  std::optional<SlurmJob> job = slurm_job();
  if (forced && !job)
    fail_user(
        "--launcher slurm: this process is in no job of Slurm (SLURM_JOB_ID is not set): start it "
        "by sbatch, srun or after salloc");
  return job;
}

bool is_rank_of_srun(const SlurmJob& job) {
  return job.task && job.task->ranks > 1;
}

bool needs_srun(const SlurmJob& job, const LaunchOptions& options) {
  return job.nodes > 1 || !job.on_its_nodes || options.front == Front::slurm;
}

std::string resume_after_requeue(const SlurmJob& job, ConfigRequest& request) {
  if (job.restarts == 0) return "";
  const Job asked = load_config(request).job;
  const std::string beginning =
      fmt::format("Slurm job {}, requeued {}: ", job.id, counted(job.restarts, "time"));
  const std::vector<std::string> outputs = asked.output_by_default
                                               ? numbered_outputs(asked.output)
                                               : std::vector<std::string>{asked.output};
  for (const std::string& output : outputs) {
    const std::optional<int64_t> step = step_saved_by(job, output);
    if (!step) continue;
    request.resume_from(output);
    return fmt::format("{}continues from step {} of {}", beginning, *step, output);
  }
  return fmt::format("{}begins again, as there is no checkpoint of this job in {}", beginning,
                     asked.output);
}

void settle_ranks(const SlurmJob& job, ConfigRequest& request) {
  if (request.ranks) {
    request.ranks = *request.ranks * job.nodes;
  } else if (job.tasks > 1 && !job.task) {
    request.ranks = job.tasks;
    request.ranks_origin = fmt::format("the tasks of Slurm job {}", job.id);
  }
}

void launch_by_srun(const SlurmJob& job, const LaunchOptions& options, int ranks, int each,
                    const std::vector<std::string>& words) {
  if (options.save_pid || options.max_restarts > 0)
    fail_user(
        "{} needs a launching dstrain, and the ranks of this job are started by srun: leave it "
        "out{}",
        options.save_pid ? "--save_pid" : "--max_restarts",
        options.save_pid ? "" : " and let Slurm requeue the job");
  log::info("Slurm job {}: {} by srun on {}", job.id, counted(ranks, "rank"),
            counted(job.nodes, "node"));
  // In a task, --num_gpus is the number of all ranks.
  start_by_srun(
      srun_words(ranks, each, options.launcher_args,
                 own_command(without_options(words, {"--num_gpus", "--num_accelerators"}))));
}

}  // namespace dstrain
