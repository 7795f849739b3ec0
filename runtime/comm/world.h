// join_world(): the part of make_communicator() for more than one rank. It chooses the transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

// The transport that the environment variable DSTRAIN_COMM asks for, parsed.
struct TransportChoice {
  bool asked_for = false;  // another one than the default
  bool messages = false;   // MPI messages between all ranks
  std::vector<int> hosts;  // the pretended machine of each rank; empty: the real machines
};

// Collective over all ranks. Throws UserError if MPI is needed and not available.
std::unique_ptr<Communicator> join_world(const CommOptions& options);

// The part of join_world() that needs MPI.
std::unique_ptr<Communicator> join_by_mpi(const TransportChoice& choice,
                                          const CommOptions& options);

// Warns on rank 0 that MPI messages are used, and `why` if that is known.
void warn_of_messages(const CommOptions& options, int rank, const std::string& why);

}  // namespace dstrain
