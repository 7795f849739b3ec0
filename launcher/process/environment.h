// Environment variables: this process's own, and those that are added for a child process.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dstrain {

// Names and values.
using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns the variables of this process, by name.
std::map<std::string, std::string> own_environment();

// Returns this process's variables and `added`, which overrides them, as exec takes them ("NAME=VALUE").
std::vector<std::string> merged_environment(const Environment& added);

// Returns the addresses of the texts and a null pointer, as exec takes them. Valid as long as the texts are.
std::vector<char*> exec_pointers(std::vector<std::string>& texts);

// Returns whether `name` has letters, digits and _ only, and does not begin with a digit.
bool is_variable_name(std::string_view name);

}  // namespace dstrain
