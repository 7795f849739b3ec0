// The ranks that mpirun started, joined: the part of make_communicator that needs MPI.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"

namespace dstrain {

// Collective over the world. Throws UserError in a build without MPI.
std::unique_ptr<Communicator> join_world(const CommOptions& options);

}  // namespace dstrain
