// LaunchOptions: the options that say where ranks run and how they are started. Invariant: every value is of the right
// type. Whether values fit each other and the hostfile is checked where they are used (placement/resources.h, fronts).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.h"

namespace dstrain {

// Who starts the ranks. `automatic`: follows from the environment and the hostfile.
enum class Front : uint8_t { automatic, none, local, openmpi, slurm };

// The options that choose hosts and slots. Empty or absent: not given.
struct HostOptions {
  std::string hostfile{};               // --hostfile: a path
  std::string include{}, exclude{};     // NODE[:slot,slot][@NODE...]
  std::optional<int64_t> nodes{};       // --num_nodes: the first N hosts
  std::optional<int64_t> slots_each{};  // --num_gpus: slots 0 to N-1 of every host
};

struct LaunchOptions {
  HostOptions hosts;
  Front front = Front::automatic;
  std::vector<std::string> launcher_args;  // further words for the command that starts ranks
  std::string master_addr;                 // an address of the first host; empty: any of them
  std::optional<int64_t> master_port;      // the first port at which a run on several hosts listens
  std::optional<int64_t> ssh_port;
  std::optional<int64_t> host_wait{};  // seconds for names without an address
  bool no_ssh_check = false;
  bool no_ssh = false;                           // this command is given on every host
  std::optional<int64_t> node_rank{}, nnodes{};  // with no_ssh: the number of this host, and of all
  std::string secret_file{};                     // whose contents hosts prove to know
  bool force_multi = false;                      // use the front for several hosts for one host too
  bool save_pid = false;
  std::string rank_log_dir;  // --enable_each_rank_log; empty: none
  bool bind_cores_to_rank = false;
  std::string bind_core_list;        // "0-3,8-11"; empty: all cores
  bool quiet = false;                // -q
  bool log_time = false;             // begin lines with date and time
  std::vector<std::string> exports;  // NAME or NAME=VALUE; NAME is a valid name
  bool dry_run = false;
  int64_t max_restarts = 0;
  bool elastic = false;
};

// Adds the options of HostOptions without --num_gpus, which every command adds itself. `options` must outlive `line`.
void add_host_options(CommandLine& line, HostOptions& options);

// Adds all options of LaunchOptions without --num_gpus. `options` must outlive `line`.
void add_launch_options(CommandLine& line, LaunchOptions& options);

// Returns the port at which node 0 of hosts that were started by hand listens: --master_port, or 29500, the usual
// default of PyTorch and DeepSpeed.
inline int meeting_port(const LaunchOptions& options) {
  return static_cast<int>(options.master_port.value_or(29500));
}

// The ports from there on at which node 0 listens, and not the run.
inline constexpr int kMeetingPorts = 1;

// Throws UserError for options that need another one, or exclude each other.
void refuse_contradictions(const LaunchOptions& options);

// Logs that the options that choose the network between hosts have no effect, and why, if they are given.
void note_without_network(const LaunchOptions& options, const std::string& why);

}  // namespace dstrain
