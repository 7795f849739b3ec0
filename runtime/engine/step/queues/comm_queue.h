// CommQueue: runs the collectives of a step beside computation. A channel is a communicator; its collectives
// run in the order in which they are posted, independently of the other channels'. While the queue waits for
// one channel, every other one with a collective under way makes progress, because a peer may need that first.
// A collective starts when the compute stream has finished the work it was given before post(). Work given to
// the compute stream after wait() starts when the collective is complete.
// There are three implementations: a stream, if the communicator works on streams; a thread, if the rank has a
// core to spare; else polling by the computing thread between two instructions.
#pragma once

#include <memory>
#include <span>

#include "runtime/comm/communicator.h"
#include "runtime/engine/step/backend.h"
#include "runtime/engine/step/trace.h"
#include "runtime/ir/op.h"

namespace dstrain {

class CommQueue {
 public:
  virtual ~CommQueue() = default;

  // Enqueues an all_reduce (out is in), reduce_scatter, all_gather, all_to_all, exchange_rows, send (of in) or recv (to out)
  // and returns. `rows`: of an exchange_rows, whose counts must stay until it has been waited for.
  // Allocates nothing up to the number of collectives that the queue was made for.
  virtual void post(int channel, OpKind op, Tensor in, Tensor out, const RowCounts& rows) = 0;
  void post(int channel, OpKind op, const Tensor& in, const Tensor& out) {
    post(channel, op, in, out, {});
  }
  // Makes later work of the compute stream wait for the first `count` collectives that were posted on a
  // channel since restart(). Throws what the communicator throws.
  virtual void wait(int channel, int32_t count) = 0;
  // Makes progress on all channels without blocking.
  virtual void poll() = 0;
  // Returns when the i-th collective of the step on a channel started and when it was found complete.
  virtual TimeSpan times(int channel, size_t i) const = 0;
  // For steps that are graphs. capturing() is called before a capture of the compute stream, captured() after it;
  // collectives that were posted between the two must have been waited for, and count as not posted. replayed() is
  // called after each launch of the graph of the capture number `capture`, from 0: its collectives then count as posted
  // and waited for. Only communicators that work on streams have collectives in graphs.
  virtual void capturing() {}
  virtual void captured() {}
  virtual void replayed(size_t /*capture*/) {}
  // Starts a new step. The caller must have waited for all collectives, and may then use the communicators
  // itself until the next post().
  virtual void restart() = 0;
};

// The caller must keep the channels and backend alive, and must not use a channel itself while collectives run.
// `most`: number of collectives of a step, by channel. `own_thread`: use a thread, one for all channels, unless
// the communicators work on streams. Each of those has a stream of its own.
std::unique_ptr<CommQueue> make_comm_queue(std::span<Communicator* const> channels,
                                           const Backend& backend, std::span<const size_t> most,
                                           bool own_thread);

}  // namespace dstrain
