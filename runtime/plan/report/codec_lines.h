// What codecs do to the bytes of a step, in words.
#pragma once

#include <span>
#include <string>

#include "runtime/config/job.h"
#include "runtime/plan/plan.h"

namespace dstrain {

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
