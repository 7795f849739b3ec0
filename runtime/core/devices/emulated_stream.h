// EmulatedStream: what a CUDA stream is on the emulated device: work that runs in the order it was given, on
// a thread of the stream's own, while the caller goes on. So an ordering that a plan forgot shows on a
// machine without a GPU too. Invariant: after a piece of work threw, nothing runs any more, and every
// later synchronize() throws the same.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dstrain {

class EmulatedStream {
 public:
  EmulatedStream();
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;
  ~EmulatedStream();  // finishes what was submitted

  // Returns at once; `work` runs after everything submitted before it. From any thread.
  void submit(std::function<void()> work);
  // Returns when everything submitted before is done; throws what the first failing work threw.
  void synchronize();

  // Between the two calls submitted work is only noted down, to be submitted later as often as wanted.
  void begin_capture();
  std::vector<std::function<void()>> end_capture();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::function<void()>> captured_;
  bool capturing_ = false;
  bool busy_ = false;
  bool closing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace dstrain
