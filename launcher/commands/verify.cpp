// dstrain verify: compares a few steps of a small job with plain training.
#include "launcher/commands/commands.h"
#include "launcher/input/defaults.h"
#include "launcher/input/name_patterns.h"
#include "launcher/placement/process_limits.h"
#include "launcher/process/failure.h"
#include "launcher/verify/gathered_ranks.h"
#include "launcher/verify/verified_runs.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/data/file/data_files.h"
#include "runtime/data/open_dataset.h"
#include "runtime/data/token_cache/token_cache.h"
#include "runtime/engine/verify/small_job.h"
#include "runtime/engine/verify/verified_rank.h"

namespace dstrain {
namespace {

constexpr int64_t kMostTriedRanks = 1024, kDeepSteps = 20;

// Loads the configuration for the ranks that are given, else for the smallest number with two ranks on each axis that its
// batch sizes allow, else for one data-parallel rank.
LoadedConfig load(ConfigRequest& request) {
  if (request.ranks) return load_config(request);
  const Job asked = check_config(request).job;
  const int64_t parts = int64_t{asked.pipeline.stages} * asked.sequence_ranks * asked.tensor_ranks;
  const int64_t shards = asked.shards.by_host ? 2 : std::max(asked.shards.ranks, 1);
  request.ranks_origin = "the ranks that verify tries";
  const int64_t least = 2 * parts * shards;
  std::vector<int64_t> tried;
  for (int64_t ranks = least; ranks <= kMostTriedRanks; ranks *= 2) tried.push_back(ranks);
  tried.push_back(parts);  // a batch for one data-parallel rank
  for (const int64_t ranks : tried) {
    request.ranks = ranks;
    if (!has_errors(check_config(request).verdicts)) return load_config(request);
  }
  request.ranks = least;
  return load_config(request);
}

struct Samples {
  std::unique_ptr<Dataset> data;
  std::string note;  // where they are from
};

// Returns the job's data for its small job, whose model reads the same arrays.
Samples arrays_for(const Job& job, const Job& small) {
  if (const std::string missing = first_missing(job.data.paths);
      job.data.paths.empty() || !missing.empty())
    fail_user(
        "the {} reads arrays, which verify does not make up, and {}: give files that have them "
        "with "
        "--data",
        job.model.family().title,
        missing.empty() ? "no data are named" : printable(missing) + " is not there");
  Job reading = small;
  reading.data.val_fraction = 0;
  reading.data.val_path = "";
  reading.eval_interval = 0;
  std::unique_ptr<Dataset> data = open_dataset(reading);
  const std::string note = "samples: " + data->summary();
  return {shrunk_samples(std::move(data), job, small), note};
}

// Returns the data that the job names, shrunk to the small job's samples; without data made-up samples.
Samples samples_for(const Job& job, Job& small) {
  if (job.model.family().reads_arrays()) return arrays_for(job, small);
  if (!job.model.family().reads_tokens())
    return {made_up_samples(small), fmt::format("samples: made up from seed {}", small.seed)};
  if (job.data.paths.empty() || !first_missing(job.data.paths).empty())
    return {made_up_samples(small),
            fmt::format("samples: no data, random token ids of seed {}", small.seed)};
  Job training = job;
  training.data.val_path = "";
  if (!texts_to_tokenize(training).empty())
    return {made_up_samples(small),
            fmt::format("samples: random token ids of seed {}, as only a run tokenizes texts",
                        small.seed)};
  Job reading = small;
  reading.model =
      job.model;  // samples are as long as those of the run, so that each has what counts there
  if (job.model.vocabulary() <= 0) reading.model.set_vocabulary(small.model.vocabulary());
  reading.data.val_fraction = 0;
  reading.data.val_path = "";
  std::unique_ptr<Dataset> data = open_dataset(reading);
  const int64_t tokens = small.model.seq_len(), of = reading.model.seq_len();
  const std::string note =
      fmt::format("samples: {}, {}ids modulo {}", data->summary(),
                  tokens < of ? fmt::format("{} of the {} tokens of each, ", tokens, of) : "",
                  small.model.vocabulary());
  return {shrunk_samples(std::move(data), reading, small), note};
}

}  // namespace

int run_verify(const VerifyArguments& arguments) {
  ConfigRequest request = arguments.request;
  request.assume_vocabulary = true;
  if (request.data && !first_missing({*request.data}).empty())
    fail_user("--data: {} is not there", printable(*request.data));
  LoadedConfig loaded = load(request);
  Job& job = loaded.job;
  settle_device_for_forks(job);
  check_name_patterns(loaded);
  SmallJob small = small_job(job);
  if (arguments.deep) small.steps = kDeepSteps;
  if (arguments.request.steps) small.steps = *arguments.request.steps;
  small.job.steps = small.steps;
  check_process_limits(small.job.ranks);
  const Samples samples = samples_for(job, small.job);
  VerifyOptions options{.steps = small.steps, .deep = arguments.deep};
  if (!arguments.seed_fault.empty()) options.fault = fault_of(arguments.seed_fault);
  Comparison comparison;
  try {
    comparison = verify_small_job(small.job, *samples.data, options);
  } catch (const StoppedBySignal& stopped) {
    return 128 + stopped.signal;
  }
  if (arguments.json)
    print_result(comparison_json(comparison));
  else
    print_result(fmt::format("{}\n{}\n{}{}\n\n{}", sizes_text(job, small.job), samples.note,
                             counted(small.steps, "step"),
                             arguments.deep ? ", stopped and resumed in the middle" : "",
                             comparison_text(comparison)));
  return comparison.equal ? 0 : 1;
}

}  // namespace dstrain
