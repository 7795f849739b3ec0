// A step that all ranks take and that fails on all ranks if it fails on one, so that no rank waits for
// one that has failed.
#pragma once

#include <exception>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/core/error.h"

namespace dstrain {

// Runs `action` on every rank; collective. If it throws on this rank, throws that error; otherwise, if it
// threw on another rank, PeerError, which names the first such rank. `what` completes "rank 3 could not".
template <class Action>
void on_all_ranks(Communicator& comm, std::string_view what, Action&& action) {
  std::exception_ptr error;
  try {
    action();
  } catch (...) {
    error = std::current_exception();
  }
  const double failed = error ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  try {
    comm.gather_values({&failed, 1}, all);
  } catch (...) {  // the run has been stopped; this rank's own error says more than that
    if (error) std::rethrow_exception(error);
    throw;
  }
  if (error) std::rethrow_exception(error);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != 0) fail_peer("rank {} could not {}; its own message says why", rank, what);
}

}  // namespace dstrain
