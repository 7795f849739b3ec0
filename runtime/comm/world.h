// The world: the communicator of all ranks of a run, over the transport that suits them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

// Collective. Returns the communicator of all ranks that mpirun or dstrain started, or of this process
// alone. Ranks of one machine share memory, machines exchange MPI messages; with a board MPI is not used.
// The environment variable DSTRAIN_COMM changes the transport, for tests: "mpi" uses messages between all
// ranks; "hosts:2" treats the first half of the ranks and the second as two machines (any number, in
// even blocks); "hosts:0,1,0" names the pretended machine of each rank. The results are the same bits
// in every case. Throws RunError if the peers cannot be reached, and UserError if MPI is needed and not available.
std::unique_ptr<Communicator> make_communicator(const CommOptions& options = {});

// Returns the machine of each of `ranks` ranks that DSTRAIN_COMM pretends; one machine for all if it pretends none.
std::vector<int> pretended_hosts(int ranks);

// Returns whether this build has MPI.
bool has_mpi();

// The transport that the environment variable DSTRAIN_COMM asks for, parsed.
struct TransportChoice {
  bool asked_for = false;  // another one than the default
  bool messages = false;   // MPI messages between all ranks
  std::vector<int> hosts;  // the pretended machine of each rank; empty: the real machines
};

// The part of make_communicator() that needs MPI.
std::unique_ptr<Communicator> join_by_mpi(const TransportChoice& choice,
                                          const CommOptions& options);

// Warns on rank 0 that MPI messages are used, and `why` if that is known.
void warn_of_messages(const CommOptions& options, int rank, const std::string& why);

}  // namespace dstrain
