// What every rank does, whoever started it: binds its cores, connects to the other ranks, and trains. Nothing here
// depends on the number of hosts.
#pragma once

#include <memory>

#include "launcher/cli/launch_options.h"
#include "launcher/input/run_input.h"
#include "launcher/output/rank_log.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/run/run.h"

namespace dstrain {

// Binds this rank to the cores that the options name, else to its share of the host's cores, with OMP_NUM_THREADS
// threads if that is set, as the launching process does. Returns the number of threads. Throws UserError.
int bind_cores(const LaunchOptions& options, int rank_on_host, int ranks_on_host);

// Returns the log file of a rank without a launching process, if the options ask for one, else null.
std::unique_ptr<RankLog> log_of(const LaunchOptions& options, int rank);
// Logs the paths of all ranks' log files.
void report_log_files(const std::string& log_prefix);

// Returns a communicator of all ranks. `slot`, `board`: see CommOptions. Collective.
std::unique_ptr<Communicator> connect(int threads, const Job& job, RankSlot* slot,
                                      const RankBoard* board = nullptr);

// Logs what became of the texts of a run.
void report_texts(const TokenizedTexts& texts);

// Logs warnings, the lines `defaults` and a summary of the input. Called once, for all ranks.
void announce(const RunInput& input, const std::vector<std::string>& defaults);

// Trains as one rank of the communicator, and keeps its slot of the board up to date. Throws what train() throws.
RunOutcome train_as(int rank, const RunInput& input, Communicator& comm, const RankBoard& board,
                    int threads);

// Returns the exit status of a run that has ended.
int status_of(const RunOutcome& outcome);

}  // namespace dstrain
