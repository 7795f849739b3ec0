// What a rank does once its job is checked: train, print a plan, generate. The launcher decides where
// ranks run and calls these; nothing here starts processes or parses arguments.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"
#include "runtime/data/dataset.h"

namespace dstrain {

struct RunContext {
  Communicator* comm = nullptr;      // its size is job.ranks
  RankSlot* slot = nullptr;          // where this rank publishes what it is doing; may be null
  std::function<int()> stop_signal;  // 0, or the number of the signal that asked the run to stop
  std::string resolved_config;       // text of resolved_config.json, written by rank 0
  std::string job;                   // the batch job that the run belongs to; empty: none
  int threads = 1;                   // OpenMP threads of this rank
  int gpu = 0;                       // which of this process's GPUs, where the job runs on them
};

struct RunOutcome {
  int64_t steps = 0;    // steps done, skipped ones included
  int stop_signal = 0;  // not 0: the run ended early, after writing weights and a checkpoint
};

// Trains `job` on this rank; collective over ctx.comm. job.model.vocab_size is final. Writes the output
// directory as the contract says. Throws UserError, RunError.
RunOutcome train(const Job& job, const Dataset& dataset, RunContext& ctx);

// What a rank's process needs besides what its plan places: code, libraries and their buffers, MPI.
inline constexpr int64_t kProcessOverheadBytes = int64_t{160} << 20;

// Bytes that one rank of `job` needs (the largest rank's), from the plan alone; and the bytes the
// machine offers are compared by the launcher before anything is allocated. `ranks_on_host`: those that share
// its host's cores, 0 for all of the job; fewer have more threads each, and so larger workspaces.
int64_t planned_bytes(const Job& job, int ranks_on_host = 0);

// The plan of `rank` as text or JSON (contract: `dstrain plan`). Pure: no device, no data, no MPI.
std::string plan_text(const Job& job, int rank);
std::string plan_json(const Job& job, int rank);

struct GenerateRequest {
  std::string run_dir;          // has resolved_config.json, model.safetensors, vocab.json
  std::vector<int32_t> prompt;  // ids; at least one
  int64_t tokens = 0;
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  uint64_t seed = 1337;
  int threads = 1;
};
// Calls `on_token` for each new token, in order. Same seed, same tokens.
void generate(const Job& job, const GenerateRequest& request,
              const std::function<void(int32_t)>& on_token);

}  // namespace dstrain
