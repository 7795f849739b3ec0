// EmulatedCapture: the work of emulated streams while it is captured, by CUDA's rules. A capture begins in one
// stream, its origin. A stream that waits for an event of the capture takes part from then on. Each stream's work
// is a lane: steps in order; waits for marks order the steps of two lanes. The capture ends in the origin, which
// must have waited for all work of the other streams.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/devices/emulated_stream.h"

namespace dstrain {

// A point in the work of a stream: reached when the stream has done the work before it, lost if that work failed.
class Mark {
 public:
  explicit Mark(EmulatedStream& origin) : origin_(origin) {}

  void settle(bool reached);
  // Waits until the point is reached. Throws what the stream failed with if it is lost.
  void wait();
  // Returns whether the point is reached or lost.
  bool settled() const;

 private:
  enum class State { open, reached, lost };
  EmulatedStream& origin_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::open;
};

// Gives `stream` the work that sets `mark` to reached. If that is dropped without running, the mark is lost, so
// that nobody waits for it.
void submit_mark(EmulatedStream& stream, std::shared_ptr<Mark> mark);

// A step of a lane: work, or else a mark that is reached or awaited there.
struct CapturedStep {
  std::function<void()> work;  // empty: a mark
  size_t mark = 0;
  bool awaited = false;
};
using CapturedLanes = std::vector<std::vector<CapturedStep>>;

class EmulatedCapture : public std::enable_shared_from_this<EmulatedCapture> {
 public:
  // Returns a capture that begins in `origin`. Throws RunError if `origin` takes part in one.
  static std::shared_ptr<EmulatedCapture> begin(EmulatedStream& origin);

  // Adds work to a lane.
  void add(size_t lane, std::function<void()> work);
  // Returns the mark of the point that a lane has come to.
  size_t record(size_t lane);
  // Lets later work of `stream` wait for a mark; the stream takes part from now on. Throws RunError if the capture
  // has ended or the stream takes part in another one.
  void wait(EmulatedStream& stream, size_t mark);
  // Ends the capture. Returns the steps of all streams, the origin's first. Throws RunError if it did not begin in
  // `origin`, or if a stream has work that the origin did not wait for.
  CapturedLanes end(EmulatedStream& origin);

 private:
  struct Lane {
    EmulatedStream* stream = nullptr;
    std::vector<CapturedStep> steps{};
    size_t works = 0;             // pieces of work among the steps
    std::vector<size_t> known{};  // by lane: how many of its pieces are complete at this point
  };
  EmulatedCapture() = default;
  std::vector<size_t> known_to(size_t lane) const;

  mutable std::mutex mutex_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<size_t>> marks_;  // what is known there
  bool ended_ = false;
};

}  // namespace dstrain
