// Resources: which hosts and slots a run takes, and which rank runs where. Stands on hostfile.h. Pure
// but for reading the hostfile. Invariant: hosts keep the hostfile's order, slots ascend, ranks are
// numbered through them in that order without a gap, and every host has a rank.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/placement/hostfile.h"

namespace dstrain {

struct HostRanks {
  std::string host;
  std::vector<int> slots;  // ascending; slot i runs rank first_rank + i
  int first_rank = 0;

  int ranks() const { return static_cast<int>(slots.size()); }
  std::vector<int> all_ranks() const;
};

// What this machine has where no hostfile says it.
struct LocalSlots {
  int all = 1;         // what --include and --exclude choose from
  int by_default = 1;  // what a run takes where nothing is said
};

// A rank by default, and as many as this process may use cores where slots are named.
LocalSlots local_slots();

struct Placement {
  std::string hostfile;  // the file that named the hosts; empty: this machine, called localhost
  std::vector<HostRanks> hosts;
  std::vector<std::string> warnings;

  int ranks() const;
};

// The hosts and slots that `options` choose from `pool` (options.hostfile is not looked at).
// --include and --exclude name them, --num_nodes takes the first hosts, --num_gpus slots 0 to N-1 of
// each; without any, all. Throws UserError: a host or slot that is not there, options that exclude each
// other, nothing left, more ranks than a run can have.
std::vector<HostRanks> choose_hosts(const Hostfile& pool, const HostOptions& options);

// The whole decision: reads --hostfile, or else `default_hostfile` where it exists (DeepSpeed's place
// for one), or else takes this machine. Throws UserError.
Placement place_ranks(const HostOptions& options, const LocalSlots& local,
                      const std::string& default_hostfile = "/job/hostfile");

}  // namespace dstrain
