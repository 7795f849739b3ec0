// Arguments: the command line, parsed and nothing more. Stands on CLI11 and on the configuration's
// request, which all but generate fill. Invariant: an Arguments holds one command and values of
// the right type; whether they make sense together is judged where they are used.
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
  ConfigRequest request;  // ranks: those that --num_gpus gives to each host
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
  ConfigRequest request;  // ranks: those of one node
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
  std::vector<std::string> words;  // of a run to look at; empty: none
};

// Internal: the launching process's hand on a host.
struct HostAgentArguments {
  bool here = false;  // where the launching process is
};
// Internal: the watcher of a host's ranks that the user's mpirun or srun started.
struct HostWatchArguments {};
// Internal: ssh's stand-in for hosts that were started by hand.
struct RelayArguments {
  std::vector<std::string> words;
};

// Internal: starts the ranks of one machine where there is no mpirun.
struct RankStarterArguments {
  int64_t ranks = 0;
  std::vector<std::string> words;  // of each rank
};

// --help and --version: the text to print.
struct PrintArguments {
  std::string text;
};

using Arguments =
    std::variant<TrainArguments, PlanArguments, CheckArguments, EstimateArguments,
                 GenerateArguments, HostsArguments, DoctorArguments, HostAgentArguments,
                 HostWatchArguments, RelayArguments, RankStarterArguments, PrintArguments>;

// Parses `words`, the command line without the program's name. Throws UserError of one line: which
// word, what was expected, and for an unknown option or command the nearest one.
Arguments parse_arguments(const std::vector<std::string>& words);

}  // namespace dstrain
