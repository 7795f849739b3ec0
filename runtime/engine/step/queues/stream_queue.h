// The implementation of CommQueue for communicators that work on streams.
#pragma once

#include "runtime/engine/step/queues/comm_queue.h"

namespace dstrain {

// Arguments as those of make_comm_queue().
std::unique_ptr<CommQueue> make_stream_queue(std::span<Communicator* const> channels,
                                             const Backend& backend, std::span<const size_t> most);

}  // namespace dstrain
