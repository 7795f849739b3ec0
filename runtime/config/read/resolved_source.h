// The resolved configuration of a run (RUN/resolved_config.json) as a configuration to start from: what the run was given,
// without defaults and without what followed from other values or from the machine, so that these follow again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/config_request.h"
#include "runtime/config/json/tree.h"

namespace dstrain {

struct ResolvedSource {
  Node root;  // the configuration
  std::string model_directory =
      {};  // the folder of transformers' files that the run's model is of; empty: none
  // What --set has changed of that model; the rest of its keys is in the folder.
  std::vector<std::pair<std::string, Node>> model_sets = {};
  // Options of the command line that the configuration does not hold.
  std::optional<std::string> device = {}, init_weights = {};
  std::optional<std::string> base_weights = {};  // as Job::base_weights
  std::optional<int64_t> ranks = {};
  std::vector<std::string> ignored = {};
};

// Returns whether a configuration has the form of a resolved one.
bool is_resolved(const Node& tree);

// Takes a resolved configuration apart. `file` names it in messages. Throws UserError if a value is out of place.
ResolvedSource read_resolved(const Node& tree, const std::string& file);

// Returns the first weights of a run, by the resolved configuration in its folder: a file or a folder, or an empty text for
// fresh weights. Returns nothing if they are not known.
std::optional<std::string> recorded_base(const std::string& run_folder);

// Completes the request of a run: --resume without a configuration takes that of the run which it names, and where the
// configuration is a resolved one, options that are not given are those of its run. A file that cannot be read is left to
// the one who reads the configuration. Throws UserError if --resume names no run.
void complete_request(ConfigRequest& request);

}  // namespace dstrain
