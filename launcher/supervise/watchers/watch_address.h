// Where the watcher on rank 0's host listens for those of other hosts, under the user's own mpirun or srun. A stranger
// in another network does not reach it.
#pragma once

#include <string>
#include <vector>

#include "launcher/connection/network.h"

namespace dstrain {

// Returns the numeric address of this host, on which rank 0 runs, at which its watcher listens: that of `master_addr`
// (--master_addr; empty: of the variable MASTER_ADDR, where it names one of this host); else one in a network in which
// all other hosts have an address, preferably the one that `host`, this host's name, has; else that one. "0.0.0.0" means
// all, where hosts have no network in common. `others`: the addresses of each other host. Throws UserError if
// `master_addr` is no address of this host.
std::string watch_address(const std::string& master_addr, const std::string& host,
                          const std::vector<std::vector<InterfaceAddress>>& others);

}  // namespace dstrain
