#include "launcher/fronts/slurm.h"

#include <catch2/catch.hpp>
#include <map>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Environ = std::map<std::string, std::string>;

std::optional<SlurmJob> job_of(const Environ& environment) {
  return slurm_job([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

// What sbatch sets for the script, and srun for a task: as Slurm 22.05 does.
const Environ kBatch = {
    {"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_TASKS_PER_NODE", "2(x2),1"},
    {"SLURM_NTASKS", "5"},  {"SLURM_CPUS_ON_NODE", "8"},  {"SLURMD_NODENAME", "node1"},
    {"SLURM_PROCID", "0"},  {"SLURM_LOCALID", "0"}};

Environ task_of_five() {
  Environ environment = kBatch;
  for (const auto& [name, value] : Environ{{"SLURM_STEP_ID", "0"},
                                           {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                                           {"SLURM_STEP_NUM_TASKS", "5"},
                                           {"SLURM_NODEID", "1"},
                                           {"SLURM_PROCID", "3"},
                                           {"SLURM_LOCALID", "1"},
                                           {"PMIX_RANK", "3"},
                                           {"SLURM_RESTART_COUNT", "2"}})
    environment[name] = value;
  return environment;
}

TEST_CASE("outside a job there is none") {
  CHECK_FALSE(job_of({}).has_value());
  CHECK_FALSE(job_of({{"SLURM_CONF", "/etc/slurm.conf"}, {"SLURM_JOB_ID", ""}}).has_value());
}

TEST_CASE("a batch script is in an allocation and is no task, though it has a number") {
  const auto job = job_of(kBatch);
  REQUIRE(job);
  CHECK(job->id == "12");
  CHECK(job->nodes == 3);
  CHECK(job->tasks == 5);
  CHECK(job->restarts == 0);
  CHECK(job->on_its_nodes);
  CHECK_FALSE(job->task.has_value());
}

TEST_CASE("without --ntasks a job has the tasks of its nodes") {
  Environ environment = kBatch;
  environment.erase("SLURM_NTASKS");
  CHECK(job_of(environment)->tasks == 5);
  environment.erase("SLURM_TASKS_PER_NODE");
  CHECK(job_of(environment)->tasks == 1);
}

TEST_CASE("a task of srun knows its place") {
  const auto job = job_of(task_of_five());
  REQUIRE((job && job->task));
  CHECK(job->restarts == 2);
  CHECK(job->task->rank == 3);
  CHECK(job->task->ranks == 5);
  CHECK(job->task->rank_on_host == 1);
  CHECK(job->task->ranks_on_host == 2);
  CHECK(job->task->pmix);
}

TEST_CASE("after salloc the process is beside the allocation") {
  Environ environment = kBatch;
  environment.erase("SLURMD_NODENAME");
  CHECK_FALSE(job_of(environment)->on_its_nodes);
}

TEST_CASE("what Slurm does not write is refused by the variable's name") {
  const auto [name, value] = GENERATE(table<std::string, std::string>({
      {"SLURM_NTASKS", "many"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x"},
      {"SLURM_STEP_TASKS_PER_NODE", "2,,1"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x0)"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x99999999)"},
      {"SLURM_PROCID", "-1"},
      {"SLURM_NODEID", "7"},
  }));
  Environ environment = task_of_five();
  environment[name] = value;
  CHECK_THROWS_AS(job_of(environment), UserError);
  CHECK_THROWS_WITH(job_of(environment), Catch::StartsWith(name));
}

TEST_CASE("tasks without PMIx are told what to do") {
  SlurmTask task;
  task.ranks = 4;
  CHECK_THROWS_WITH(export_task_place(task),
                    Catch::StartsWith("srun started 4 tasks that cannot find each other") &&
                        Catch::Contains("srun --mpi=pmix"));
}

TEST_CASE("srun gets the ranks, the user's words and the program as they are") {
  CHECK(srun_words(4, 0, {"--exclusive", "a b"}, {"/bin/dstrain", "--config", "c d.json"}) ==
        std::vector<std::string>{"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--ntasks=4",
                                 "--exclusive", "a b", "/bin/dstrain", "--config", "c d.json"});
  CHECK(srun_words(4, 2, {}, {"/bin/dstrain"}) ==
        std::vector<std::string>{"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--ntasks=4",
                                 "--ntasks-per-node=2", "/bin/dstrain"});
}

TEST_CASE("cores: bound by Slurm, fenced in, or the whole machine in sight") {
  SlurmJob job = *job_of(task_of_five());  // 8 cores of this node, 2 tasks on it
  const CoreUse own = core_use(job, 1, 2, 4);
  CHECK((own.ranks_on_host == 1 && own.rank_on_host == 0 && own.threads == 4 && own.bound));
  const CoreUse fenced = core_use(job, 1, 2, 8);
  CHECK((fenced.ranks_on_host == 2 && fenced.rank_on_host == 1 && fenced.bound));
  const CoreUse open = core_use(job, 1, 2, 64);
  CHECK((open.threads == 4 && !open.bound));
  job.cores_here = 0;
  CHECK(core_use(job, 1, 2, 64).bound);
}

}  // namespace
}  // namespace dstrain
