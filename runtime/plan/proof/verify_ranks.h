// The proof that the plans of several ranks fit together.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

// Replays one step of several ranks together, as if nothing had a buffer: a message is over when both sides have
// reached it, a collective when all of the given ranks of its group have, and an instruction waits as its plan says.
// `plans`: for every stage of the pipeline, in any order, the plans of the ranks with the same numbers in their
// data-parallel groups. With all ranks of the run it is a proof for the run, with one of each stage a proof of the
// messages. Throws InternalError naming rank and instruction if two sides exchange different messages, if ranks of a
// group start different collectives, if one of either is missing, or if ranks wait for each other.
void verify_ranks(std::span<const Plan* const> plans);

// Replays every kind of steps and the validation of these ranks, as above.
void verify_ranks(std::span<const RankPlan* const> ranks);

// Returns checksums of what a rank exchanges on each channel, in order: integers that a double holds. Both sides of a
// link, and all ranks of a group, have the same one.
std::vector<double> channel_checksums(const Plan& plan);

// Throws InternalError if two ranks of a stage have different collectives in a group that both are in, in any kind of
// steps or in validation. The plans need no addresses.
void compare_collectives(const RankPlan& a, const RankPlan& b);

// Compares the checksums of all ranks of a run, those of each rank behind those of the one before. `place`: of any rank.
// Throws InternalError naming two ranks that have planned different messages or collectives.
void compare_checksums(std::span<const double> all, const Place& place, PipelineSchedule schedule);

}  // namespace dstrain
