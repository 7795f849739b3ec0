// LoadedConfig: what a configuration says: the job, where each of its values came from, and a verdict on each key.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/config/verdict.h"

namespace dstrain {

// One setting of the run: its key, its value, and where the value came from.
struct Setting {
  std::string key;    // as in the file; "run." before what only the command line knows
  std::string value;  // JSON text
  // "ds_config.json:12:5", "--set", "--steps", "default", "auto: ...", "derived: ..."
  std::string origin;
};
using Settings = std::vector<Setting>;  // in the order in which they were read

// The result of loading a configuration: the job, and a verdict on each key.
struct LoadedConfig {
  Job job;                        // complete if `verdicts` has no error and the ranks were given
  std::vector<Verdict> verdicts;  // in the file's order, then the command line's
  Settings settings;
  std::vector<std::string> warnings;  // for rank 0 to print once
  // With errors: the options with which the configuration trains, "it trains with --ignore amp", or what they leave to
  // mend; empty: none is known.
  std::string way_on;
  // With errors: a line with the command that leaves out all keys that DeepSpeed ignores and that mean nothing here; empty:
  // there are less than two.
  std::string without_effect;
  // The text of config.json in the output directory; empty: the model is not one of transformers'.
  std::string config_json;
  // The file names no batch size: the micro-batch is the default, which may be made smaller to fit.
  bool default_batch = false;

  // Records a value that the launcher determines after loading. Does nothing if `key` has it already.
  void settle(const std::string& key, const std::string& value, const std::string& why);
};

}  // namespace dstrain
