// Resources: chooses the hosts and slots of a run and numbers its ranks. Pure except for reading the hostfile.
// Invariant: hosts are in the hostfile's order, slots ascend, ranks are numbered in that order without a gap, and every
// host has at least one rank.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/placement/hostfile.h"

namespace dstrain {

// The ranks that run on one host, and the slots that they take there. A slot is a place for one rank.
struct HostRanks {
  std::string host;
  std::vector<int> slots;  // ascending; slot i runs rank first_rank + i
  int first_rank = 0;

  int ranks() const { return static_cast<int>(slots.size()); }
  std::vector<int> all_ranks() const;
};

// The slots of this machine if there is no hostfile.
struct LocalSlots {
  int all = 1;         // from which --include and --exclude choose
  int by_default = 1;  // of a run without options
};

// Returns one slot by default, and as many as there are usable cores, or GPUs if these are more, for --include and
// --exclude.
LocalSlots local_slots();

// The hosts of a run, in the order of their ranks, and the ranks on each.
struct Placement {
  std::string hostfile;  // the file that named the hosts; empty: this machine, called localhost
  std::vector<HostRanks> hosts;
  std::vector<std::string> warnings;

  int ranks() const;
};

// Returns the hosts and slots that `options` choose from `pool`; ignores options.hostfile. --include and --exclude name
// them, --num_nodes takes the first hosts, --num_gpus takes slots 0 to N-1 of each. Without these options all are
// chosen. Throws UserError for an unknown host or slot, for options that exclude each other, if nothing is left, and if
// there are more ranks than a run can have.
std::vector<HostRanks> choose_hosts(const Hostfile& pool, const HostOptions& options);

// Returns the paths at which a hostfile is looked for where no option names one: DeepSpeed's, and the one at which
// Kubernetes' MPI operator (kubeflow.org/v2beta1) writes one for its launcher.
std::vector<std::string> usual_hostfiles();

// Returns where the ranks run: on the hosts of --hostfile, else of the first of `usual` that exists, else on this machine.
// Throws UserError.
Placement place_ranks(const HostOptions& options, const LocalSlots& local,
                      const std::vector<std::string>& usual = usual_hostfiles());

}  // namespace dstrain
