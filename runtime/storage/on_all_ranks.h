// A step that all ranks take and that fails on all ranks if it fails on one, so that no rank waits for
// one that has failed.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/core/error.h"
#include "runtime/core/files/no_room_error.h"

namespace dstrain {

// How a step that all ranks took failed; they agree on it.
struct AgreedFailure {
  std::exception_ptr
      error;         // this rank's own; else PeerError, which names the first rank that failed
  bool own = false;  // `error` is this rank's own
  bool can_go_on = false;  // on every rank that failed it was a UserError or RunError, not a bug
  bool no_room = false;    // on a rank that failed it was a NoRoomError
};

// Runs `action` on every rank; collective. Returns how it failed, on every rank or on none. `what` completes
// "rank 3 could not". Throws if ranks cannot agree, because the run has been stopped.
template <class Action>
std::optional<AgreedFailure> failure_on_any_rank(Communicator& comm, std::string_view what,
                                                 Action&& action) {
  constexpr double none = 0, no_room = 1, can_go_on = 2, cannot = 3;
  std::exception_ptr error;
  double mine = none;
  try {
    action();
  } catch (const UserError&) {
    error = std::current_exception();
    mine = can_go_on;
  } catch (const NoRoomError&) {
    error = std::current_exception();
    mine = no_room;
  } catch (const RunError&) {
    error = std::current_exception();
    mine = can_go_on;
  } catch (...) {
    error = std::current_exception();
    mine = cannot;
  }
  std::vector<double> all(static_cast<size_t>(comm.size()));
  try {
    comm.gather_values({&mine, 1}, all);
  } catch (...) {  // the run has been stopped; this rank's own error says more than that
    if (error) std::rethrow_exception(error);
    throw;
  }
  const double worst = *std::ranges::max_element(all);
  if (worst == none) return std::nullopt;
  AgreedFailure failure{.error = error,
                        .own = error != nullptr,
                        .can_go_on = worst != cannot,
                        .no_room = std::ranges::find(all, no_room) != all.end()};
  const auto first = std::ranges::find_if(all, [](double rank) { return rank != none; });
  if (!failure.own)
    failure.error = std::make_exception_ptr(PeerError(
        fmt::format("rank {} could not {}; its own message says why", first - all.begin(), what)));
  return failure;
}

// The same, but throws the failure's error.
template <class Action>
void on_all_ranks(Communicator& comm, std::string_view what, Action&& action) {
  if (const auto failure = failure_on_any_rank(comm, what, action))
    std::rethrow_exception(failure->error);
}

}  // namespace dstrain
