// --elastic: which hosts a restart may leave out. The remaining ranks must give the same global batch, so that the run
// stays the same training. Pure except for reading the configuration file.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/resources.h"
#include "runtime/config/load.h"

namespace dstrain {

// Returns `hosts` without those in `names`, with ranks numbered again from 0.
std::vector<HostRanks> hosts_without(const std::vector<HostRanks>& hosts,
                                     const std::vector<std::string>& names);

// Returns why a run with `train_batch` samples per step cannot continue with `ranks` ranks; empty if it can.
std::string reason_against_ranks(const ConfigRequest& request, int64_t train_batch, int ranks);

// Throws UserError if none of the hosts could be left out.
void check_elastic(const std::vector<HostRanks>& hosts, const ConfigRequest& request,
                   int64_t train_batch);

}  // namespace dstrain
