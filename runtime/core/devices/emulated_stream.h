// EmulatedStream: the stream of the emulated device. It runs work in order on its own thread while the caller
// continues, so that tests find a missing synchronization without a GPU. After a piece of work has thrown,
// later work is dropped, and every synchronize() throws the same error. All methods are thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace dstrain {

class EmulatedCapture;

// The capture that a stream takes part in, and the lane of the capture in which the stream's work is recorded.
struct CaptureLane {
  std::shared_ptr<EmulatedCapture> capture;  // null: none
  size_t lane = 0;
};

class EmulatedStream {
 public:
  EmulatedStream();
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;
  ~EmulatedStream();  // runs the submitted work first

  // Adds `work` after all work submitted before. Does not wait. In a capture it is recorded instead of run.
  void submit(std::function<void()> work);
  // Waits until all submitted work is done. Throws what the first failing work threw; RunError in a capture.
  void synchronize();

  // Lets the stream take part in a capture, or, without one, leave it (EmulatedCapture).
  void set_capture(CaptureLane lane);
  CaptureLane capture() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  CaptureLane capture_;
  bool busy_ = false;
  bool closing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace dstrain
