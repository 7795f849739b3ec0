// A step that every rank takes and that fails everywhere if it fails anywhere, so that nobody waits
// for a rank that has given up. Stands on comm.
#pragma once

#include <exception>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/core/error.h"

namespace dstrain {

// Runs `action`, then hears from all ranks. Throws this rank's own error, or RunError that names the
// first rank that could not `what`.
template <class Action>
void together(Communicator& comm, std::string_view what, Action&& action) {
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
  } catch (...) {  // others have given up, perhaps since this rank cannot even tell them
    if (error) std::rethrow_exception(error);
    throw;
  }
  if (error) std::rethrow_exception(error);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != 0) fail_peer("rank {} could not {}; its own message says why", rank, what);
}

}  // namespace dstrain
