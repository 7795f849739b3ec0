#include "launcher/fronts/rank_run.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "launcher/fronts/slurm.h"
#include "launcher/implementations.h"
#include "launcher/placement/core_binding.h"
#include "launcher/placement/gpus.h"
#include "runtime/comm/world.h"
#include "runtime/comm/world_environment.h"
#include "runtime/config/report/auto_line.h"
#include "runtime/config/report/resolved_config.h"
#include "runtime/core/cpu.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/log/log.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/storage/output_lock.h"

namespace dstrain {
namespace {

// Binds this rank to its own cores as far as they are known.
int bind_slurm_cores(const SlurmJob& job, int rank_on_host, int ranks_on_host) {
  const std::vector<int> cores = usable_cores();
  const CoreUse use = core_use(job, rank_on_host, ranks_on_host, static_cast<int>(cores.size()));
  if (use.bound) return take_core_share(use.rank_on_host, use.ranks_on_host, use.threads);
  bind_to_cores(cores, use.threads);
  return use.threads;
}

// Says which of OpenMP's settings of affinity are set: they are not those of ranks.
void report_affinity() {
  std::string names;
  int count = 0;
  for (const char* const name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) == nullptr) continue;
    names += fmt::format("{}{}", count++ == 0 ? "" : ", ", name);
  }
  if (count > 0)
    log::info(
        "{} {} no effect: ranks share the cores that this machine lets them use, or those of "
        "--bind_core_list",
        names, count == 1 ? "has" : "have");
}

}  // namespace

int bind_cores(const LaunchOptions& options, int rank_on_host, int ranks_on_host) {
  const CoreBinding binding(options);
  if (binding.wanted()) return binding.bind(rank_on_host, ranks_on_host);
  if (const std::optional<SlurmJob> job = slurm_job())
    return bind_slurm_cores(*job, rank_on_host, ranks_on_host);
  return take_core_share(rank_on_host, ranks_on_host, threads_asked_for());
}

void report_log_files(const std::string& log_prefix) {
  log::info("each rank writes to {}_rank*.log", log_prefix);
}

std::unique_ptr<RankLog> log_of(const LaunchOptions& options, int rank) {
  if (options.rank_log_dir.empty()) return nullptr;
  const std::string prefix = rank_log_prefix(options.rank_log_dir);
  if (rank == 0) report_log_files(prefix);
  return std::make_unique<RankLog>(prefix, rank);
}

std::unique_ptr<Communicator> connect(int threads, const Job& job, RankSlot* slot,
                                      const RankBoard* board) {
  CommOptions options;
  options.threads = threads;
  options.deadline_seconds = static_cast<double>(job.timeout_s);
  options.slot = slot;
  options.board = board;
  options.warn = [](const std::string& text) { log::warn("{}", text); };
  return make_communicator(options);
}

void report_texts(const TokenizedTexts& texts) {
  for (const std::string& warning : texts.warnings) log::warn("{}", warning);
  if (!texts.line.empty()) log::info("{}", texts.line);
}

void announce(const RunInput& input, const std::vector<std::string>& defaults) {
  for (const std::string& warning : input.loaded.warnings) log::warn("{}", warning);
  if (const std::string line = auto_line(input.loaded); !line.empty()) log::info("{}", line);
  for (const std::string& line : defaults) log::info("{}", line);
  if (!input.output_line.empty()) log::info("{}", input.output_line);
  report_texts(input.texts);
  log::info("{}", input.dataset->summary());
  report_affinity();
}

RunOutcome train_as(int rank, const RunInput& input, Communicator& comm, const RankBoard& board,
                    int threads) {
  RankSlot& slot = board.slot(rank);
  slot.set_state(RankState::running);
  RunContext context{implementations()};
  context.comm = &comm;
  context.slot = &slot;
  context.stop_signal = [&board] { return board.stop_request(); };
  context.requests = &board;
  context.resolved_config = resolved_config_json(input.loaded);
  context.config_json = input.loaded.config_json;
  if (const std::optional<SlurmJob> job = slurm_job()) context.job = job->id;
  if (const char* const holder = std::getenv(kOutputHolderVariable)) context.output_holder = holder;
  context.threads = threads;
  if (is_gpu(input.job().device)) {
    const char* const gpus = std::getenv(kGpusVariable);
    context.gpu = gpu_of_rank(gpus == nullptr ? "" : gpus, rank,
                              rank_on_this_host_from_environment(), cuda_device_count());
  }
  const RunOutcome outcome = train(input.job(), *input.dataset, context);
  if (outcome.stop_signal != 0) board.set_stopped(outcome.stop_signal);
  comm.finish();
  slot.set_state(RankState::done);
  return outcome;
}

int status_of(const RunOutcome& outcome) {
  return outcome.stop_signal == 0 ? 0 : 128 + outcome.stop_signal;
}

}  // namespace dstrain
