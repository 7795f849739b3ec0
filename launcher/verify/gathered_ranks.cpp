#include "launcher/verify/gathered_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "launcher/cli/launch_options.h"
#include "launcher/fronts/rank_run.h"
#include "launcher/implementations.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/gpus.h"
#include "launcher/process/failure.h"
#include "launcher/process/memory_file.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/ranks/rank_starter.h"
#include "launcher/supervise/supervisor.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

void write_bytes(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_run("cannot hand on what a rank has found: {}", system_reason(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

std::string read_bytes(int file) {
  std::string bytes;
  std::array<char, 1 << 16> buffer;
  off_t at = 0;
  for (ssize_t n = 0; (n = ::pread(file, buffer.data(), buffer.size(), at)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_run("cannot read what a rank has found: {}", system_reason(errno));
    bytes.append(buffer.data(), static_cast<size_t>(n));
    at += n;
  }
  return bytes;
}

// Runs in a fork, as one rank. Returns its exit status.
int run_rank(const Job& job, const RankWork& work, const std::vector<Descriptor>& files) {
  const int rank = world_rank_from_environment();
  const RankBoard board = join_launcher(rank);
  log::set_least(log::Level::warning);
  std::unique_ptr<Communicator> comm;
  try {
    const int threads = bind_cores(LaunchOptions{}, rank, job.ranks);
    RankSlot& slot = board.slot(rank);
    comm = connect(threads, job, &slot, &board);
    slot.set_state(RankState::running);
    RunContext context{implementations()};
    context.comm = comm.get();
    context.slot = &slot;
    context.threads = threads;
    context.stop_signal = [&board] { return board.stop_request(); };
    if (is_gpu(job.device)) context.gpu = gpu_of_rank("", rank, rank, cuda_device_count());
    write_bytes(files[static_cast<size_t>(rank)].get(), work(context));
    if (comm->abort_reason().empty()) comm->finish();
    slot.set_state(RankState::done);
    return 0;
  } catch (...) {
    const Failure failure = current_failure();
    board.fail(rank, failure.kind, failure.text);
    if (comm) comm->abort(failure.text);
    return failure.exit_status();
  }
}

}  // namespace

std::vector<std::string> gather_from_ranks(const Job& job, const RankWork& work) {
  std::vector<Descriptor> files;
  for (int r = 0; r < job.ranks; ++r) files.push_back(memory_file("dstrain-found", ""));
  RankBoard board = RankBoard::create(job.ranks);
  SupervisedRun run{.board = board,
                    .starter = kRankStarter,
                    .timeouts = {.instruction = job.timeout_s * 1'000'000'000}};
  run.body = [&] {
    return start_ranks_here(
        job.ranks, [&] { return run_rank(job, work, files); }, &board);
  };
  const RunReport report = Supervisor(std::move(run)).run();
  if (const int signal = board.stop_request(); signal != 0) throw StoppedBySignal{signal};
  if (report.exit_status == 1) throw UserError(report.error);
  if (report.exit_status != 0) throw RunError(report.error);
  std::vector<std::string> found;
  for (const Descriptor& file : files) found.push_back(read_bytes(file.get()));
  return found;
}

void settle_device_for_forks(Job& job) {
  if (!has_cuda_backend() || job.device == DeviceChoice::cpu) return settle_device(job);
  Job one = job;
  one.ranks = 1;
  // The driver's state does not survive a fork, so a process of its own asks it.
  const Descriptor answer = memory_file("dstrain-device", "");
  const pid_t child = ::fork();
  if (child < 0) fail_run("cannot start a process: {}", system_reason(errno));
  if (child == 0) {
    std::string text;
    try {
      settle_device(one);
      text = name_of(one.device);
    } catch (const std::exception& e) {
      text = std::string("!") + e.what();
    }
    write_bytes(answer.get(), text);
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string text = read_bytes(answer.get());
  if (text.empty()) fail_run("the process that looks for GPUs ended early");
  if (text.front() == '!') throw UserError(text.substr(1));
  job.device = device_named(text);
}

}  // namespace dstrain
