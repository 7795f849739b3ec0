// RunInput: the input of a run, read and checked: configuration, data, weights, and the paths that it writes to.
// Invariant: in what read_input() returns the device is chosen and the vocabulary's size known.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/input/fit_to_memory.h"
#include "launcher/input/input_facts.h"
#include "launcher/input/memory_check.h"
#include "runtime/config/load.h"
#include "runtime/data/dataset.h"
#include "runtime/data/token_cache/token_cache.h"
#include "runtime/plan/plan.h"

namespace dstrain {

struct RunInput {
  LoadedConfig loaded;
  std::unique_ptr<Dataset> dataset;
  InputFacts facts;           // compared between ranks; empty for one rank
  TokenizedTexts texts{};     // what became of texts that the model's tokenizer makes tokens of
  std::string output_line{};  // where results go, for the log; empty: where the user expects them
  const Job& job() const { return loaded.job; }
};

// Where a job whose device is settled will run: nowhere (it is planned), on this machine, or on other hosts, which may
// have GPUs where this machine has none.
enum class RunsWhere { nowhere, here, elsewhere };

// Chooses the device if the job says "auto": CUDA if there is a GPU here, else the CPU. Throws UserError if the job
// names a device that this build does not have, or that this machine does not have and the job runs here.
void settle_device(Job& job, RunsWhere where = RunsWhere::here);

// Sets the number of ranks if the request does not: that of the run whose resolved configuration it names, else one for
// each GPU that the run would use, else one.
void settle_ranks(ConfigRequest& request);

// Sets the micro-batch if the file names no batch size: that of the run that is resumed, else the default, halved until
// the ranks fit into what is `offered`. Without `offered`, and on GPUs, memory is not checked. Adds the value to `request`
// too, so that reading it again gives the same. The vocabulary's size must be known.
void settle_batch(ConfigRequest& request, LoadedConfig& loaded, std::optional<RankMemory> offered);

// Settles the batch with settle_batch(), and with settle_open() what else the file leaves open. A default micro-batch is
// halved only where it does not suffice that a tensor group gathers rows again, and rows come in pieces only where the
// smallest micro-batch does not fit. Returns true if the job is then known to fit.
bool settle_to_fit(ConfigRequest& request, LoadedConfig& loaded, std::optional<RankMemory> offered);

// Replaces the default micro-batch. `why` becomes its origin in resolved_config.json.
void apply_micro_batch(LoadedConfig& loaded, int64_t micro_batch, const std::string& why);

// Sets the steps of a run of so many epochs (request.epochs; does nothing without), whose batch must be settled: as many
// as take each training sample so often, the last one rounded up. Throws UserError if the model has no epochs, or the
// configuration is wrong with that many steps.
void settle_steps(const ConfigRequest& request, LoadedConfig& loaded, const Dataset& dataset);

// Reads the input that every rank needs, and settles the device and the output directory. Texts are tokenized into the output directory's cache, or
// with CacheUse::read must be there. request.ranks must be set. Throws UserError.
RunInput read_input(const ConfigRequest& request, RunsWhere where = RunsWhere::here,
                    CacheUse cache = CacheUse::make);

// Checks, in the launching process and before anything is started or allocated: the initial weights, or the checkpoint
// and what has changed since it; the model's files that the run copies; that no
// results in the output directory would be replaced; the memory for `ranks_here` ranks on this machine, unless it is 0 or the job
// `fits` there; the output directory; the trace file. Throws UserError.
void check_surroundings(const RunInput& input, int ranks_here,
                        RankProcesses processes = RankProcesses::programs, bool fits = false);

// Logs how much the ranks of this machine put on each drive that tensors are offloaded to. Throws UserError if one
// lacks the space.
void check_disks_here(const Job& job, int ranks_here);

}  // namespace dstrain
