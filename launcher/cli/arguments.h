// Arguments: the parsed command line. Invariant: it holds one command and values of the right type. Whether the values
// fit each other is checked where they are used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "runtime/config/load.h"

namespace dstrain {

struct TrainArguments {
  ConfigRequest request;  // request.ranks is --num_gpus: the ranks of each host
  LaunchOptions launch;
};

struct PlanArguments {
  ConfigRequest request;
  int64_t rank = 0;
  bool json = false;
};

struct CheckArguments {
  ConfigRequest request;
  bool json = false;
};

struct EstimateArguments {
  ConfigRequest request;  // request.ranks: the ranks of one node
  int64_t nodes = 1;
};

struct HostsArguments {
  HostOptions hosts;
  bool json = false;
};

struct GenerateArguments {
  std::string run_dir;
  std::string device = "auto";
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> prompt_ids;
  int64_t tokens = 0;
  double temperature = 1.0;
  int64_t top_k = 0;
  uint64_t seed = 1337;
};

struct DoctorArguments {
  LaunchOptions launch;
  std::vector<std::string>
      words;  // the command line of a run whose input is checked too; empty: none
};

// The commands of command_names.h, which dstrain gives to itself.
struct HostAgentArguments {
  bool here = false;  // the agent is on the launching process's machine
};
struct HostWatchArguments {};
struct RelayArguments {
  std::vector<std::string> words;
};
struct RankStarterArguments {
  int64_t ranks = 0;
  std::vector<std::string> words;  // the command line of each rank
};

// --help or --version: the text to print.
struct PrintArguments {
  std::string text;
};

using Arguments =
    std::variant<TrainArguments, PlanArguments, CheckArguments, EstimateArguments,
                 GenerateArguments, HostsArguments, DoctorArguments, HostAgentArguments,
                 HostWatchArguments, RelayArguments, RankStarterArguments, PrintArguments>;

// Parses `words`, the command line without the program's name. Throws UserError with one line: which word is wrong, what
// was expected, and for an unknown option or command the known name that is most like it.
Arguments parse_arguments(const std::vector<std::string>& words);

}  // namespace dstrain
