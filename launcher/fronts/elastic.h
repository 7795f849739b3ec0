// Elastic: --elastic. Which hosts a restart may leave out so that the run stays the same training: the
// global batch must be made by the ranks that remain. Stands on the configuration's solver. Pure but for
// reading the configuration file.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/resources.h"
#include "runtime/config/load.h"

namespace dstrain {

// `hosts` without those of these names, ranks numbered anew.
std::vector<HostRanks> hosts_without(const std::vector<HostRanks>& hosts,
                                     const std::vector<std::string>& names);

// Why a run of `request` that has `train_batch` samples in a step cannot go on with `ranks` ranks; empty: it
// can.
std::string problem_with_ranks(const ConfigRequest& request, int64_t train_batch, int ranks);

// Throws UserError where none of the hosts could be left out.
void check_elastic(const std::vector<HostRanks>& hosts, const ConfigRequest& request,
                   int64_t train_batch);

}  // namespace dstrain
