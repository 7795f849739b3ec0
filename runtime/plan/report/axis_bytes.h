// What a rank sends in a step along each axis of the mesh, and groups that wait for a slow network.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/plan/plan.h"

namespace dstrain {

// The bytes that a rank sends in a step, as wire_bytes() counts them, by the axis along which they travel. Those of a group
// whose ranks differ along several axes count for the first of data, sequence and tensor: gradients that are added over
// data-parallel and sequence ranks together count as `data`.
struct AxisBytes {
  int64_t data = 0, sequence = 0, tensor = 0;
  int64_t pipe = 0;  // messages between stages
  int64_t total() const { return data + sequence + tensor + pipe; }
  bool operator==(const AxisBytes&) const = default;
};
AxisBytes bytes_by_axis(const Plan& plan);

// Returns a line for each axis of several ranks: how large the rank's group is, and what the rank sends along it in a
// step. Empty where ranks have different samples alone.
std::string axis_bytes_text(const Plan& plan);

// Returns a sentence if the ranks of a tensor group are on several hosts, which wait for each other's messages in every
// layer; else nothing. `hosts`: of every rank of the world.
std::string tensor_hosts_warning(const Place& place, std::span<const int> hosts);

}  // namespace dstrain
