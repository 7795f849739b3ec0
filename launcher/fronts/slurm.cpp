#include "launcher/fronts/slurm.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "launcher/process/stop_signals.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

int number_in(const std::string& variable, const std::string& text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end || value < 0)
    fail_user("{}: expected a number as Slurm sets it, got '{}'", variable, text);
  return value;
}

class Reader {
 public:
  explicit Reader(const Variables& variable) : variable_(variable) {}
  std::optional<std::string> text(const char* name) const {
    const char* value = variable_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }
  int number(const char* name, int otherwise) const {
    const auto value = text(name);
    return value ? number_in(name, *value) : otherwise;
  }
  std::vector<int> counts(const char* name) const {
    const auto value = text(name);
    return value ? slurm_counts(name, *value) : std::vector<int>{1};
  }

 private:
  const Variables& variable_;
};

}  // namespace

std::vector<int> slurm_counts(const std::string& variable, const std::string& text) {
  std::vector<int> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, comma - begin);
    int times = 1;
    if (const size_t open = part.find("(x"); open != std::string::npos && part.ends_with(')')) {
      times = number_in(variable, part.substr(open + 2, part.size() - open - 3));
      part.resize(open);
    }
    constexpr int kMostNodes = 1 << 20;
    if (times < 1 || times > kMostNodes - static_cast<int>(counts.size()))
      fail_user("{}: expected counts like 2(x3),1 as Slurm sets them, got '{}'", variable, text);
    counts.insert(counts.end(), static_cast<size_t>(times), number_in(variable, part));
    begin = comma + 1;
  }
  return counts;
}

std::optional<SlurmJob> slurm_job() {
  return slurm_job([](const char* name) { return std::getenv(name); });
}

std::optional<SlurmJob> slurm_job(const Variables& variable) {
  const Reader read(variable);
  const auto id = read.text("SLURM_JOB_ID");
  if (!id) return std::nullopt;
  SlurmJob job;
  job.id = *id;
  job.restarts = read.number("SLURM_RESTART_COUNT", 0);
  job.nodes = read.number("SLURM_JOB_NUM_NODES", 1);
  const std::vector<int> tasks = read.counts("SLURM_TASKS_PER_NODE");
  job.tasks = read.number("SLURM_NTASKS", std::accumulate(tasks.begin(), tasks.end(), 0));
  job.cores_here = read.number("SLURM_CPUS_ON_NODE", 0);
  job.on_its_nodes = read.text("SLURMD_NODENAME").has_value();
  if (!read.text("SLURM_STEP_ID") || !job.on_its_nodes) return job;
  // The numbers of this step, which may differ from the job's.
  const std::vector<int> of_step = read.counts("SLURM_STEP_TASKS_PER_NODE");
  const auto node = static_cast<size_t>(read.number("SLURM_NODEID", 0));
  if (node >= of_step.size())
    fail_user("SLURM_NODEID is {}, and SLURM_STEP_TASKS_PER_NODE has {}", node,
              counted(static_cast<int64_t>(of_step.size()), "node"));
  job.task = SlurmTask{.rank = read.number("SLURM_PROCID", 0),
                       .ranks = read.number("SLURM_STEP_NUM_TASKS", 1),
                       .rank_on_host = read.number("SLURM_LOCALID", 0),
                       .ranks_on_host = of_step[node],
                       .pmix = read.text("PMIX_RANK").has_value()};
  return job;
}

void export_task_place(const SlurmTask& task) {
  if (!task.pmix)
    fail_user(
        "srun started {} tasks that cannot find each other, as it runs without PMIx: use "
        "srun --mpi=pmix ('srun --mpi=list' shows whether it has that), or start one dstrain in "
        "the batch script, without srun",
        task.ranks);
  const auto set = [](const char* name, int value) {
    ::setenv(name, std::to_string(value).c_str(), 1);
  };
  set("OMPI_COMM_WORLD_SIZE", task.ranks);
  set("OMPI_COMM_WORLD_RANK", task.rank);
  set("OMPI_COMM_WORLD_LOCAL_SIZE", task.ranks_on_host);
  set("OMPI_COMM_WORLD_LOCAL_RANK", task.rank_on_host);
}

std::vector<std::string> srun_words(int ranks, int each,
                                    const std::vector<std::string>& launcher_args,
                                    const std::vector<std::string>& program) {
  std::vector<std::string> words = {"srun", "--mpi=pmix", "--kill-on-bad-exit=1",
                                    fmt::format("--ntasks={}", ranks)};
  if (each > 0) words.push_back(fmt::format("--ntasks-per-node={}", each));
  words.insert(words.end(), launcher_args.begin(), launcher_args.end());
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

void start_by_srun(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  release_stop_signals();
  ::execvp(argv[0], argv.data());
  fail_user(
      "cannot start srun: {} (in an allocation of one node, --launcher local works without it)",
      std::strerror(errno));
}

CoreUse core_use(const SlurmJob& job, int rank_on_host, int ranks_on_host, int usable) {
  const int cores = job.cores_here;
  if (cores == 0 || usable == cores) return {rank_on_host, ranks_on_host, 0, true};
  if (usable < cores) {
    if (job.task && job.task->ranks > 1) return {0, 1, usable, true};
    return {rank_on_host, ranks_on_host, 0, true};
  }
  // Some of the usable cores belong to other jobs, and which ones is unknown.
  return {rank_on_host, ranks_on_host, std::max(1, cores / ranks_on_host), false};
}

}  // namespace dstrain
