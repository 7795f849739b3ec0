// EmulatedStream: the stream of the emulated device. It runs work in order on its own thread while the caller
// continues, so that tests find a missing synchronization without a GPU. After a piece of work has thrown,
// later work is dropped, and every synchronize() throws the same error. All methods are thread-safe.
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
  ~EmulatedStream();  // runs the submitted work first

  // Adds `work` after all work submitted before. Does not wait.
  void submit(std::function<void()> work);
  // Waits until all submitted work is done. Throws what the first failing work threw.
  void synchronize();

  // Between the two calls, submitted work is recorded instead of run. end_capture() returns it.
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
