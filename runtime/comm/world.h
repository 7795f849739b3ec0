// The ranks of a world, joined: the part of make_communicator for several of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

// DSTRAIN_COMM, taken apart.
struct TransportChoice {
  bool asked_for = false;  // it names another transport than the usual one
  bool messages = false;   // between all ranks
  std::vector<int> hosts;  // by rank, pretended; empty: only what is so
};

// Collective over the world. Throws UserError where it needs MPI and cannot have it.
std::unique_ptr<Communicator> join_world(const CommOptions& options);

// Its part that needs MPI.
std::unique_ptr<Communicator> join_by_mpi(const TransportChoice& choice,
                                          const CommOptions& options);

// Says on rank 0 that a slower transport is used, and `why` where that is known.
void warn_of_messages(const CommOptions& options, int rank, const std::string& why);

}  // namespace dstrain
