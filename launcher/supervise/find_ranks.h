// Ranks that exist and have not said so yet: one may be stopped, or hang, before it can. Stands on /proc.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace dstrain {

// The processes of this user that mpirun has started as ranks, by rank, of those that have `mark`
// ("NAME=VALUE") in their environment.
std::map<int, pid_t> find_ranks(const std::string& mark);

}  // namespace dstrain
