// The proof that the plans of a pipeline's stages fit together.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/plan/plan.h"

namespace dstrain {

// Replays one step of all stages, a plan of each in their order, as if nothing had a buffer: a message is over when
// both sides have reached it, and an instruction waits as its plan says. Throws InternalError naming stage and
// instruction if two sides exchange different messages, if one is missing, or if stages wait for each other.
void verify_messages(std::span<const Plan* const> stages);

// Returns a checksum of the messages of a channel, in order: both sides of a channel have the same one.
uint64_t messages_checksum(const Plan& plan, Channel channel);

}  // namespace dstrain
