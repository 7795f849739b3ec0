#include "launcher/fronts/child_rank.h"

#include <functional>
#include <optional>

#include "launcher/fronts/rank_run.h"
#include "launcher/input/same_input.h"
#include "launcher/process/failure.h"
#include "launcher/ranks/rank_link.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

// `read` returns the input of a run with `ranks` ranks.
int run_rank(const LaunchOptions& options, const std::function<const RunInput&(int ranks)>& read) {
  const int rank = world_rank_from_environment();
  const RankBoard board = join_launcher(rank);
  std::unique_ptr<RankLog> log_file;
  std::unique_ptr<Communicator> comm;
  try {
    const int ranks = board.ranks();
    check(world_size_from_environment() == ranks, "{} processes for {} ranks",
          world_size_from_environment(), ranks);
    log_file = RankLog::from_environment(rank);
    if (log_file) log::set_time_stamps(options.log_time);
    const int threads = bind_cores(options, rank_on_this_host_from_environment(),
                                   ranks_on_this_host_from_environment());
    const RunInput& input = read(ranks);
    comm = connect(threads, input.job(), &board.slot(rank), &board);
    if (const std::string other = difference_of_input(*comm, input.facts); !other.empty())
      throw UserError(other);
    train_as(rank, input, *comm, board, threads);
    return 0;
  } catch (...) {
    const Failure failure = current_failure();
    board.fail(rank, failure.kind,
               failure.text);  // before abort(), so that the failures of peers come after it
    if (comm) comm->abort(failure.text);
    return failure.exit_status();
  }
}

}  // namespace

int run_launched_rank(const TrainArguments& arguments) {
  std::optional<RunInput> input;
  return run_rank(arguments.launch, [&](int ranks) -> const RunInput& {
    ConfigRequest request = arguments.request;
    request.ranks = ranks;
    input.emplace(read_input(request, RunsWhere::here, CacheUse::read));
    if (rank_on_this_host_from_environment() == 0)
      check_disks_here(input->job(), ranks_on_this_host_from_environment());
    return *input;
  });
}

int run_forked_rank(const RunInput& input, const LaunchOptions& options) {
  return run_rank(options, [&input](int) -> const RunInput& { return input; });
}

}  // namespace dstrain
