// The entry to the configuration: load_config turns a DeepSpeed file and the command line into a checked
// Job. The code above works with the Job and never reads JSON or checks a value again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/config/verdict.h"

namespace dstrain {

class ModelRegistry;

// One setting of the run: its key, its value, and where the value came from.
struct Setting {
  std::string key;    // as in the file; "run." before what only the command line knows
  std::string value;  // JSON text
  // "ds_config.json:12:5", "--set", "--steps", "default", "auto: ...", "derived: ..."
  std::string origin;
};
using Settings = std::vector<Setting>;  // in the order in which they were read

// The value of --init_weights that asks for fresh weights where the model has some.
inline constexpr std::string_view kFreshWeights = "random";

// The options of the command line that the configuration depends on; an absent one was not given.
struct ConfigRequest {
  const ModelRegistry* models =
      nullptr;                       // required; the caller keeps them alive, also for the jobs
  std::string path;                  // of the configuration file; empty: all values are defaults
  std::vector<std::string> sets;     // path.to.key=value, later ones win
  std::vector<std::string> ignored;  // path.to.key, as if the file did not have it
  std::optional<int64_t> ranks;      // absent: nothing that depends on their number is checked
  std::string ranks_origin = "--num_gpus";  // how messages name the source of `ranks`
  std::optional<std::string> device, model, data, vocab, output, init_weights, resume;
  std::optional<int64_t> steps, seed, save_interval;
  std::optional<double> epochs;  // how often the training samples are seen, instead of `steps`
  int64_t epoch_steps = 1;  // the steps of these epochs, once the caller has counted the samples
  std::optional<int64_t> device_memory;  // bytes
  std::optional<std::string> recompute;  // "selective" or an interval
  std::optional<int64_t> pipeline_stages;
  std::optional<std::string> pipeline_schedule;
  std::optional<int64_t> tensor_parallel;  // ranks that share each layer
  bool overwrite = false, resume_with_changes = false;
  bool need_data = false;  // a missing dstrain.data.path is an error (training)
  // Data of format bin without the size of the vocabulary are no error (planning).
  bool assume_vocabulary = false;
};

// The result of loading a configuration: the job, and a verdict on each key.
struct LoadedConfig {
  Job job;                        // complete if `verdicts` has no error and the ranks were given
  std::vector<Verdict> verdicts;  // in the file's order, then the command line's
  Settings settings;
  std::vector<std::string> warnings;  // for rank 0 to print once
  // With errors: the options with which the configuration trains, "it trains with --ignore amp", or what they leave to
  // mend; empty: none is known.
  std::string way_on;
  // The text of config.json in the output directory; empty: the model is not one of transformers'.
  std::string config_json;
  // The file names no batch size: the micro-batch is the default, which may be made smaller to fit.
  bool default_batch = false;

  // Records a value that the launcher determines after loading. Does nothing if `key` has it already.
  void settle(const std::string& key, const std::string& value, const std::string& why);
};

// Throws UserError if there is no device of that name.
void check_device_name(const std::string& device);

// Returns the job that `request` asks for. Throws one UserError with every error of the configuration, a
// line each ("ds_config.json:12:5: zero_optimization.stage: ..."), and in the last line the way on.
LoadedConfig load_config(const ConfigRequest& request);

// Returns a job of one rank with the model of a folder of transformers' files, and defaults. Throws UserError if there is no
// such model.
Job job_of_model_directory(const std::string& directory, const ModelRegistry& models);

// Returns the verdicts for `dstrain check`. Every error inside the file becomes a verdict, a syntax error
// too. Throws UserError if the file cannot be read or an option of the request is wrong.
LoadedConfig check_config(const ConfigRequest& request);

}  // namespace dstrain
