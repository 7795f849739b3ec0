// Finds ranks that run but have not joined the board, because they are stopped or hang before that.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace dstrain {

// Returns the processes, by rank, that mpirun has started as ranks and that have `mark` ("NAME=VALUE") in their
// environment, as far as this user may read it.
std::map<int, pid_t> find_ranks(const std::string& mark);

}  // namespace dstrain
