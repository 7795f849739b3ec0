#include "runtime/core/devices/emulated_capture.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The work item that sets a mark to reached. If it is dropped without running, the destructor sets the mark to
// lost.
class Reach {
 public:
  explicit Reach(std::shared_ptr<Mark> mark) : mark_(std::move(mark)) {}
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
  ~Reach() { mark_->settle(false); }
  void run() const { mark_->settle(true); }

 private:
  std::shared_ptr<Mark> mark_;
};

}  // namespace

void Mark::settle(bool reached) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::open) state_ = reached ? State::reached : State::lost;
  }
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::open; });
  if (state_ == State::reached) return;
  lock.unlock();
  origin_.synchronize();  // throws what the stream failed with
}

bool Mark::settled() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::open;
}

void submit_mark(EmulatedStream& stream, std::shared_ptr<Mark> mark) {
  stream.submit([reach = std::make_shared<Reach>(std::move(mark))] { reach->run(); });
}

std::shared_ptr<EmulatedCapture> EmulatedCapture::begin(EmulatedStream& origin) {
  if (origin.capture().capture) fail_run("a stream's work is being captured already");
  std::shared_ptr<EmulatedCapture> capture(new EmulatedCapture);
  capture->lanes_.push_back({.stream = &origin});
  origin.set_capture({capture, 0});
  return capture;
}

void EmulatedCapture::add(size_t lane, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  lanes_[lane].steps.push_back({.work = std::move(work)});
  ++lanes_[lane].works;
}

std::vector<size_t> EmulatedCapture::known_to(size_t lane) const {
  std::vector<size_t> known = lanes_[lane].known;
  known.resize(lanes_.size());
  known[lane] = lanes_[lane].works;
  return known;
}

size_t EmulatedCapture::record(size_t lane) {
  const std::lock_guard lock(mutex_);
  marks_.push_back(known_to(lane));
  lanes_[lane].steps.push_back({.work = {}, .mark = marks_.size() - 1});
  return marks_.size() - 1;
}

void EmulatedCapture::wait(EmulatedStream& stream, size_t mark) {
  CaptureLane place = stream.capture();
  const std::lock_guard lock(mutex_);
  if (ended_)
    fail_run("a wait for an event that was last recorded in a capture (CUDA's error 907)");
  if (!place.capture) {
    lanes_.push_back({.stream = &stream});
    place = {shared_from_this(), lanes_.size() - 1};
    stream.set_capture(place);
  }
  if (place.capture.get() != this)
    fail_run("a captured stream waits for an event of another capture (CUDA's error 906)");
  std::vector<size_t> known = known_to(place.lane);
  for (size_t i = 0; i < marks_[mark].size(); ++i) known[i] = std::max(known[i], marks_[mark][i]);
  Lane& lane = lanes_[place.lane];
  lane.known = std::move(known);
  lane.steps.push_back({.work = {}, .mark = mark, .awaited = true});
}

CapturedLanes EmulatedCapture::end(EmulatedStream& origin) {
  const std::lock_guard lock(mutex_);
  if (lanes_.front().stream != &origin) fail_run("a capture ends where it did not begin");
  ended_ = true;
  const std::vector<size_t> known = known_to(0);
  CapturedLanes lanes;
  bool joined = true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].stream->set_capture({});
    joined = joined && known[i] == lanes_[i].works;
    lanes.push_back(std::move(lanes_[i].steps));
  }
  if (!joined)
    fail_run("a capture ends before its origin has waited for all streams (CUDA's error 904)");
  return lanes;
}

}  // namespace dstrain
