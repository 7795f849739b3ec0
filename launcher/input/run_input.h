// RunInput: everything a run is told from outside, read and checked: configuration, data, weights,
// and the places it will write to. Stands on config, data, storage and models. Invariant: what
// read_input returns is final: device chosen, vocabulary size known.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/input/input_facts.h"
#include "runtime/config/load.h"
#include "runtime/data/dataset.h"

namespace dstrain {

struct RunInput {
  LoadedConfig loaded;
  std::unique_ptr<Dataset> dataset;
  InputFacts facts;  // that ranks compare; none where there is one rank
  const Job& job() const { return loaded.job; }
};

// Chooses the device where the job leaves it open: CUDA where there is a GPU, else the CPU. Throws
// UserError where it names one that this build does not have, or, if it is to `run`, this machine.
void settle_device(Job& job, bool run = true);

// The ranks of a run that does not say: one for each GPU that it would use, else one.
void settle_ranks(ConfigRequest& request);

// The vocabulary's size, from the data where the configuration leaves it open. Throws UserError where
// there is no data either.
void settle_vocabulary(Job& job);

// Where the file names no batch size: halves the default micro-batch until a rank fits into the bytes
// `offered` to each (absent: not looked at, nor is a GPU's memory), or takes that of the run that is
// resumed. `request` then asks for it too, so that it holds wherever it is read again. The vocabulary is
// settled.
void settle_batch(ConfigRequest& request, LoadedConfig& loaded, std::optional<int64_t> offered);

// What this machine offers each of `ranks_here` ranks.
int64_t memory_of_each(int ranks_here);

// Another micro-batch in place of the default one; `why` is what resolved_config.json says of it.
void take_micro_batch(LoadedConfig& loaded, int64_t micro_batch, const std::string& why);

// A line that says which batch the run takes where the file at `path` names none; else empty.
std::string batch_line(const std::string& path, const LoadedConfig& loaded);

// Throws UserError where a pattern of dstrain.weight_decay_exclude is the name of no weight. The vocabulary
// need not be settled.
void check_exclusions(const Job& job);

// What every rank needs. request.ranks is known. Throws UserError.
RunInput read_input(const ConfigRequest& request);

// What the launching process checks once, before anything is started or allocated: initial weights or
// checkpoint and what has changed since it, no other run in the output directory and no checkpoints that it
// would remove, memory for `ranks_here` ranks on this machine (0: not looked at), the output directory, the
// trace's file. Throws UserError.
void check_surroundings(const RunInput& input, int ranks_here);

// Its part that looks at this machine's memory. Throws UserError.
void check_memory_here(const Job& job, int ranks_here);

// A lower bound of what a rank of the job needs, without planning it: cheap for an absurdly large model.
double least_bytes(const Job& job);

// The part of check_surroundings that compares `needed` bytes for each of `ranks_here` ranks with what
// is offered. `lower_bound`: the run needs that and more. Throws UserError with both numbers and what to
// do (`advice`, where there is better than the usual).
void check_memory(int64_t needed, int ranks_here, int64_t offered, const std::string& source,
                  bool lower_bound = false, const std::string& advice = "");

// Makes the directory where it is missing and proves that files can be made in it. Throws UserError.
void check_output_directory(const std::string& directory);

}  // namespace dstrain
