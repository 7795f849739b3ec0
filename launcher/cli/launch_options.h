// LaunchOptions: what the command line says about where ranks run and how they are started, as it was
// given. Invariant: every value is of the right type; whether they make sense together, and with the
// hostfile, is judged where they are used (resources.h and the fronts).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.h"

namespace dstrain {

// Who starts the ranks. `automatic`: found out from the surroundings.
enum class Front : uint8_t { automatic, local, openmpi, slurm };

// Which of the hosts and slots a run takes; empty or absent: not given.
struct HostOptions {
  std::string hostfile{};               // --hostfile: a path
  std::string include{}, exclude{};     // NODE[:slot,slot][@NODE...]
  std::optional<int64_t> nodes{};       // --num_nodes: the first N hosts
  std::optional<int64_t> slots_each{};  // --num_gpus: slots 0 to N-1 of every host
};

struct LaunchOptions {
  HostOptions hosts;
  Front front = Front::automatic;
  std::vector<std::string> launcher_args;  // words for the command that starts ranks
  std::string master_addr;                 // of the first host; empty: any of its addresses
  std::optional<int64_t> master_port;      // the first of those at which a run on hosts listens
  std::optional<int64_t> ssh_port;
  bool no_ssh_check = false;
  bool no_ssh = false;                           // every host is started by hand
  std::optional<int64_t> node_rank{}, nnodes{};  // with no_ssh: which of how many this is
  bool force_multi = false;  // go through the front of several hosts for one host too
  bool save_pid = false;
  std::string rank_log_dir;  // --enable_each_rank_log; empty: none
  bool bind_cores_to_rank = false;
  std::string bind_core_list;        // "0-3,8-11"; empty: all cores
  bool quiet = false;                // -q
  bool log_time = false;             // lines begin with date and time
  std::vector<std::string> exports;  // NAME or NAME=VALUE; NAME is a valid name
  bool dry_run = false;
  int64_t max_restarts = 0;
  bool elastic = false;
};

// Adds the options of HostOptions but --num_gpus, which every command has. What is bound to `options`
// lives as long as the line is used.
void add_host_options(CommandLine& line, HostOptions& options);

// Adds all options of LaunchOptions but --num_gpus.
void add_launch_options(CommandLine& line, LaunchOptions& options);

// The port at which hosts that are started by hand meet: --master_port, or 29500 as elsewhere.
inline int meeting_port(const LaunchOptions& options) {
  return static_cast<int>(options.master_port.value_or(29500));
}

// Throws UserError for options that say nothing without another one.
void refuse_contradictions(const LaunchOptions& options);

// Says of the options that choose the network between hosts that they have no effect, and why.
void note_without_network(const LaunchOptions& options, const std::string& why);

}  // namespace dstrain
