// CommQueue: the collectives of a step, run in the order they are posted while computation goes on. A
// collective begins when the compute stream has done what was given to it before, and what is given to
// it after wait() finds the collective complete.
// Where the communicator works on streams the queue is a stream. Elsewhere the host drives it: a thread
// of its own where the rank has a core to spare, else the computing thread, whenever it polls between
// two instructions.
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

  // Starts all_reduce (out is in), reduce_scatter or all_gather; returns at once. Allocates nothing up
  // to the number of collectives the queue was made for.
  virtual void post(OpKind op, Tensor in, Tensor out) = 0;
  // Whatever is given to the compute stream from now on finds the first `count` collectives posted since
  // restart() complete. Throws what the communicator throws.
  virtual void wait(int32_t count) = 0;
  // Makes progress without blocking.
  virtual void poll() = 0;
  // When the i-th of the step was posted, and when it was seen to be complete.
  virtual TimeSpan times(size_t i) const = 0;
  // Begins to count anew; everything posted must have been waited for. Until the next post() the caller may use
  // the communicator itself.
  virtual void restart() = 0;
};

// `comm` and `backend` outlive the queue; `comm` is used through it alone while collectives are under
// way. `most`: how many a step posts. `own_thread`: where the host drives it, from a thread of its own.
std::unique_ptr<CommQueue> make_comm_queue(Communicator& comm, const Backend& backend, size_t most,
                                           bool own_thread);

}  // namespace dstrain
