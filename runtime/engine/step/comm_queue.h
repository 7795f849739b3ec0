// CommQueue: runs the collectives of a step beside computation, in the order in which they are posted. A
// collective starts when the compute stream has finished the work it was given before post(). Work given to
// the compute stream after wait() starts when the collective is complete.
// There are three implementations: a stream, if the communicator works on streams; a thread, if the rank has a
// core to spare; else polling by the computing thread between two instructions.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/engine/step/backend.h"
#include "runtime/engine/step/trace.h"
#include "runtime/ir/op.h"

namespace dstrain {

class CommQueue {
 public:
  virtual ~CommQueue() = default;

  // Enqueues an all_reduce (out is in), reduce_scatter or all_gather and returns. Allocates nothing up to the
  // number of collectives that the queue was made for.
  virtual void post(OpKind op, Tensor in, Tensor out) = 0;
  // Makes later work of the compute stream wait for the first `count` collectives posted since restart().
  // Throws what the communicator throws.
  virtual void wait(int32_t count) = 0;
  // Makes progress without blocking.
  virtual void poll() = 0;
  // Returns when the i-th collective of the step started and when it was found complete.
  virtual TimeSpan times(size_t i) const = 0;
  // Starts a new step. The caller must have waited for all collectives, and may then use the communicator
  // itself until the next post().
  virtual void restart() = 0;
};

// The caller must keep comm and backend alive, and must not use comm itself while collectives run. `most`:
// number of collectives of a step. `own_thread`: use a thread unless the communicator works on streams.
std::unique_ptr<CommQueue> make_comm_queue(Communicator& comm, const Backend& backend, size_t most,
                                           bool own_thread);

}  // namespace dstrain
