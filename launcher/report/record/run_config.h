// RunConfig: the settings of a run with their origins (resolved_config.json), and where those of several runs differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain::report {

struct ConfigEntry {
  std::string key, value, origin;  // the value as JSON text

  // Whether somebody has given it: it is neither a default nor follows from other values.
  bool is_given() const;
};

using RunConfig = std::vector<ConfigEntry>;

// Reads the file's settings, in its order; none where it is missing. Throws UserError if it is no resolved configuration.
RunConfig read_run_config(const std::string& path);

// Returns the value of a key as JSON text, or as its characters where it is a text; empty where there is none.
std::string value_of(const RunConfig& config, std::string_view key);

// A key with whose value not all runs agree: the value of each, or nothing where a run lacks the key.
struct ConfigDifference {
  std::string key;
  std::vector<std::optional<std::string>> values;
};

// Returns the keys in which runs differ, in the order in which they appear. What a run is called does not count: its output
// directory and that from which it was resumed. A run without any setting is left out of the comparison.
std::vector<ConfigDifference> config_differences(const std::vector<const RunConfig*>& runs);

}  // namespace dstrain::report
