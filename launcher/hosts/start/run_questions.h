// The questions of the preflight checks about one run: its input, its memory, its network and ports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/hosts/checks/preflight.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/resources.h"

namespace dstrain {

// Returns the questions about the run's input, as this process has read it, and its memory. `input` must outlive them.
PreflightQuestions questions_about(const RunInput& input, const std::string& config,
                                   const std::vector<std::string>& words);

// Adds what the options of a run ask for: its network and ports, and how long ssh may take. Throws UserError.
void add_option_questions(PreflightQuestions& questions, const LaunchOptions& options,
                          const std::vector<HostRanks>& hosts);

// Returns the files that a run reads, with its configuration file, as hosts tell them: [{"path", "hash"}].
nlohmann::json input_files(const RunInput& input, const std::string& config);

// Reads the input of a start on hosts from the words of its command line, as every host does that is given them: at a
// restart the launching process, too. `ranks`: of the run. Throws UserError as read_input() does.
struct HostInput {
  std::string config;  // the path of the configuration
  RunInput input;
};
HostInput read_host_input(const std::vector<std::string>& words, int64_t ranks,
                          const ModelRegistry& models, RunsWhere where, CacheUse cache);

// Returns the numeric address that --master_addr names; empty if the option is not given. Throws UserError.
std::string master_address(const LaunchOptions& options);

// Returns the largest number of ranks on one host.
int most_ranks(const std::vector<HostRanks>& hosts);

}  // namespace dstrain
