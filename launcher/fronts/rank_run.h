// What a process does as one rank, whoever started it: takes its cores, finds the others, trains. Stands
// on the runtime. Invariant: none of this knows how many hosts there are.
#pragma once

#include <memory>

#include "launcher/cli/launch_options.h"
#include "launcher/input/run_input.h"
#include "launcher/output/rank_log.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/run/run.h"

namespace dstrain {

// Binds this rank to the cores that the options say, or else to its share of the cores, with
// OMP_NUM_THREADS threads (the launching process sets it for its ranks) where that is set. Returns the
// number of threads. Throws UserError.
int take_cores(const LaunchOptions& options, int rank_on_host, int ranks_on_host);

// The file that a rank without a launching process writes to, where the options want one.
std::unique_ptr<RankLog> log_of(const LaunchOptions& options, int rank);
// Says where the files of all ranks are.
void say_where(const std::string& log_prefix);

// This rank's place among the others. `slot`, `board`: as CommOptions has them. Collective.
std::unique_ptr<Communicator> connect(int threads, const Job& job, RankSlot* slot,
                                      const RankBoard* board = nullptr);

// Says, once for all ranks, what was noticed about the input; `batch`: batch_line().
void announce(const RunInput& input, const std::string& batch);

// One rank's run over a communicator that is set up. Marks the slot; throws what train() throws.
RunOutcome train_as(int rank, const RunInput& input, Communicator& comm, const RankBoard& board,
                    int threads);

// The exit status of a run that came to its end.
int status_of(const RunOutcome& outcome);

}  // namespace dstrain
