// What a rank sends in a step, in words: along each axis of the mesh, and with codecs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/config/job.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// The bytes that a rank sends in a step, as wire_bytes() counts them, by the axis along which they travel. Those of a group
// whose ranks differ along several axes count for the first of data, sequence and tensor: gradients that are added over
// data-parallel and sequence ranks together count as `data`.
struct AxisBytes {
  int64_t data = 0, sequence = 0, tensor = 0;
  int64_t expert = 0;  // rows of experts, where all choices are even
  int64_t pipe = 0;    // messages between stages
  int64_t total() const { return data + sequence + tensor + expert + pipe; }
  bool operator==(const AxisBytes&) const = default;
};
AxisBytes bytes_by_axis(const Plan& plan);

// Returns a line for each axis of several ranks: how large the rank's group is, and what the rank sends along it in a
// step. Empty where ranks have different samples alone.
std::string axis_bytes_text(const Plan& plan);

// Returns a sentence if the ranks of a tensor group are on several hosts, which wait for each other's messages in every
// layer; else nothing. `hosts`: of every rank of the world.
std::string tensor_hosts_warning(const Place& place, std::span<const int> hosts);

// The bytes that the collectives and messages of a step send if every collective of a group runs on a ring
// (docs/formats.md), of ranks or of hosts, and an all-to-all sends each slice to its receiver.
struct SentBytes {
  int64_t rank = 0;  // by the plan's rank
  int64_t host = 0;  // in collectives of its stage by all ranks on its host, to other hosts
  bool operator==(const SentBytes&) const = default;
};

// Returns a line for each of the rank's training plans, if there are several: which steps run it, and what they send.
std::string step_kinds_text(const Job& job, const RankPlan& plans);

// `hosts`: of every rank of the world.
SentBytes sent_bytes(const Plan& plan, std::span<const int> hosts);

// Returns a line that says what travels quantized, and the bytes of a step with and without; nothing for a job without
// codecs. `plan` is the rank's for training.
std::string codec_line(const Job& job, const Plan& plan, std::span<const int> hosts,
                       const PlanInputs& inputs);

}  // namespace dstrain
