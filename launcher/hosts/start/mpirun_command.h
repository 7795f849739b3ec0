// The command that starts the ranks of several hosts: Open MPI's mpirun, which reaches the hosts by the same ssh
// command as the agents. Pure except for finding programs on PATH.
#pragma once

#include <string>
#include <vector>

#include "launcher/connection/network.h"
#include "launcher/hosts/ssh.h"
#include "launcher/placement/resources.h"
#include "launcher/ranks/rank_command.h"

namespace dstrain {

// The settings of the mpirun command that starts the ranks of several hosts.
struct MpirunOptions {
  std::string run;  // the run's name (ranks/run_directory.h)
  SshOptions ssh;
  Environment exported;                    // for every rank
  std::vector<std::string> launcher_args;  // further words for mpirun
  std::string directory;                   // the ranks' current directory
  int threads = 1;                         // of a rank
  std::string network;                     // "10.77.0.0/24": in which ranks connect; empty: in any
  PortRange ports;                         // at which the run listens; none: at any
};

// Returns the mpirun command that starts `program` on every slot of `hosts`, with ranks in their order on whichever
// host mpirun runs. Throws UserError if there is no mpirun or no ssh, or if a word of the ssh command has a blank,
// which mpirun cannot pass on.
RankCommand mpirun_on_hosts(const std::vector<HostRanks>& hosts, const MpirunOptions& options,
                            const std::vector<std::string>& program);

}  // namespace dstrain
