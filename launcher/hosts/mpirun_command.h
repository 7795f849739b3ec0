// The command that starts the ranks of several hosts: Open MPI's mpirun, which reaches the hosts by the
// same ssh as we do. Pure but for looking for programs on PATH.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/network.h"
#include "launcher/hosts/ssh.h"
#include "launcher/placement/resources.h"
#include "launcher/ranks/rank_command.h"

namespace dstrain {

struct HostsStart {
  std::string run;  // its name: run_place.h
  SshOptions ssh;
  Environment exported;                    // for every rank
  std::vector<std::string> launcher_args;  // further words for mpirun
  std::string directory;                   // where ranks run
  int threads = 1;                         // of a rank
  std::string network;                     // "10.77.0.0/24": ranks talk there; empty: anywhere
  PortRange ports;                         // where they listen; none: at any
};

// mpirun starting `program` on every slot of `hosts`, ranks in their order wherever mpirun runs. Throws UserError where there
// is no mpirun or no ssh, or a word of the ssh command has a blank in it, which mpirun cannot pass on.
RankCommand mpirun_on_hosts(const std::vector<HostRanks>& hosts, const HostsStart& start,
                            const std::vector<std::string>& program);

// For people: the environment that is added, and the words, quoted for a shell.
std::string command_text(const RankCommand& command);

// Whether `host` names this machine: localhost, or its host name.
bool is_this_machine(const std::string& host);

// What starts the agent on a host.
std::vector<std::string> agent_command(const std::string& host, const SshOptions& ssh,
                                       const std::string& program);

}  // namespace dstrain
