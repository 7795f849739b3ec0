// What a rank does once its job is checked: it trains or generates. The launcher decides where ranks run and
// calls these; nothing here starts processes or parses arguments.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"
#include "runtime/data/dataset.h"
#include "runtime/plan/implementations.h"

namespace dstrain {

class StepObserver;
class Trainer;

// What a rank's run needs besides the job and the data. The caller must keep what it refers to alive.
struct RunContext {
  const Implementations& implementations;
  Communicator* comm = nullptr;         // its size is job.ranks
  RankSlot* slot = nullptr;             // where this rank publishes its progress; may be null
  std::function<int()> stop_signal{};   // 0, or the number of the signal that asked the run to stop
  const RankBoard* requests = nullptr;  // through which a trace may be asked for; may be null
  std::string resolved_config{};        // text of resolved_config.json, written by rank 0
  std::string config_json{};            // text of config.json; empty: the run writes none
  std::string job{};                    // id of the batch job that the run belongs to; empty: none
  // Who has the lock of the output directory (OutputLock::holder()), which then must be there; empty: nobody, and a
  // directory that is not there is made.
  std::string output_holder{};
  int threads = 1;                   // threads of this rank
  int gpu = 0;                       // which of this process's GPUs, where the job runs on them
  StepObserver* observer = nullptr;  // told of every instruction of the training steps; may be null
  std::function<void(const Trainer&)>
      after_step{};  // called after every training step; may be empty
};

// The result of train(): how many steps were done, and whether a signal ended the run early.
struct RunOutcome {
  int64_t steps = 0;  // steps done, skipped ones included
  int stop_signal =
      0;  // not 0: the signal that ended the run early, after weights and a checkpoint
};

// Trains `job` on this rank and writes the output directory (docs/formats.md). Collective over ctx.comm.
// job.model.vocabulary() must be known. Throws UserError, RunError.
RunOutcome train(const Job& job, const Dataset& dataset, RunContext& ctx);

}  // namespace dstrain
