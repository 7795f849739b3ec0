// CopyQueue: the copies of a step between the device's memory and the host's, on a stream of their own beside
// computation, in the order in which they are posted. A copy starts when the compute stream has finished the work it
// was given before post().
#pragma once

#include <memory>
#include <vector>

#include "runtime/core/tensor.h"
#include "runtime/engine/step/backend.h"
#include "runtime/engine/step/trace.h"

namespace dstrain {

class CopyQueue {
 public:
  // The caller must keep the backend alive. `most`: number of copies of a step.
  CopyQueue(const Backend& backend, size_t most);
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;
  ~CopyQueue();  // waits for the copies under way

  // Enqueues a copy and returns. Allocates nothing.
  void post(const Tensor& from, const Tensor& to);
  // Counts as a copy that was posted, and does nothing.
  void pass();
  // Makes later work of the compute stream wait for the first `count` copies posted since restart().
  void wait(int32_t count);
  // Waits for them.
  void synchronize(int32_t count);
  // Returns when the i-th copy of the step was posted, and when the host found it complete, if it waited for it.
  TimeSpan times(size_t i) const { return copies_[i].time; }
  // Starts a new step. The compute stream must have waited for all copies, and the caller for the compute stream.
  void restart();

 private:
  struct Copy {
    std::unique_ptr<Event> ready, done;
    TimeSpan time{};
  };

  Copy& next();

  const Backend& backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<Copy> copies_;  // of a step
  size_t posted_ = 0;
  size_t waited_ = 0,
         synchronized_ = 0;  // copies that the compute stream and the host have waited for
};

}  // namespace dstrain
