// What offload costs: what a step moves between device, host and disk, how long that takes beside computing, and from
// how many tokens a step on it matters little. Estimates at the rates of a machine. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/plan/cost/machine_rates.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// The part of the speed without offload that is asked for at the break-even.
inline constexpr double kOffloadBreakEven = 0.9;

// The estimated cost of a rank's step with offload: the bytes that it moves, and the seconds that its parts take.
struct OffloadCost {
  double to_host = 0, to_device = 0;  // copies
  double disk_read = 0, disk_written = 0;
  double computing = 0;  // of the device
  double beside = 0;     // transfers that computing hides, as far as it takes as long
  double copies_at_end =
      0;  // transfers after the backward pass, and the update on the host beside them
  double disk_at_end = 0;
  double update_on_host = 0;
  double update_on_device = 0;  // of the same state, if the device had it
  int64_t tokens = 0;           // of the step, of all data-parallel ranks
  // The smallest number of tokens, in whole micro-batches, from which on a step is at least kOffloadBreakEven as fast
  // as one without offload. None if no number of micro-batches of this size suffices.
  std::optional<int64_t> break_even_tokens{};

  // Returns the seconds after the backward pass: transfers and updates run beside each other.
  double end() const;
  bool moves_anything() const { return to_host + to_device + disk_read + disk_written > 0; }
};

// Returns the cost of a training plan whose micro-batches have `micro_tokens` tokens on all data-parallel ranks
// together.
OffloadCost offload_cost(const Plan& plan, const MachineRates& rates, int64_t micro_tokens);

// Returns the lines of `dstrain plan` about it, with the rates; empty if nothing is moved.
std::string offload_text(const OffloadCost& cost, const MachineRates& rates, DType dtype);

}  // namespace dstrain
