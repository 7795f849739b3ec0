// ConfigLines: the values of a configuration that `dstrain init` writes, and the file's text. Pure.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// A value of the configuration.
struct ConfigLine {
  std::string key;        // "optimizer.params.lr"
  std::string value;      // JSON text
  std::string comment{};  // that stands above it, or above the section that it begins; empty: none
};

// Returns the line that an option has, "optimizer.params.lr=0.001"; text that is no JSON is a string. Throws UserError if
// there is no key or no value.
ConfigLine line_of_set(const std::string& set);

// Returns the lines as options of a command line have them.
std::vector<std::string> as_sets(const std::vector<ConfigLine>& lines);

// Returns the text of a configuration: the comments of `head`, then sections and values in the order in which `lines` first
// name them. Of a key that comes twice the last value counts, and a value that is named as a section becomes one.
std::string config_text(const std::vector<std::string>& head, const std::vector<ConfigLine>& lines);

}  // namespace dstrain
