#include "runtime/core/devices/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/core/devices/emulated_capture.h"
#include "runtime/core/devices/host_memory_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

EmulatedStream& thread_of(Stream& stream) {
  return *static_cast<EmulatedStream*>(stream.native());
}

// An event: a mark of a stream's work, or, if it was last recorded in a capture, one of the capture.
class EmulatedEvent final : public Event {
 public:
  void record(Stream& stream) override {
    EmulatedStream& thread = thread_of(stream);
    const CaptureLane place = thread.capture();
    capture_ = place.capture;
    if (capture_) {
      captured_mark_ = capture_->record(place.lane);
      return;
    }
    mark_ = std::make_shared<Mark>(thread);
    submit_mark(thread, mark_);
  }
  void synchronize() override {
    check_live();
    if (mark_) mark_->wait();
  }
  bool reached() override {
    check_live();
    return !mark_ || mark_->settled();
  }
  void hold(EmulatedStream& stream) const {
    if (capture_) return capture_->wait(stream, captured_mark_);
    if (!mark_) return;
    if (stream.capture().capture)
      fail_run("a captured stream waits for an event of before the capture (CUDA's error 905)");
    stream.submit([mark = mark_] { mark->wait(); });
  }

 private:
  void check_live() const {
    if (capture_)
      fail_run(
          "the host asks about an event that was last recorded in a capture (CUDA's error 907)");
  }

  std::shared_ptr<Mark> mark_;                // null: never recorded
  std::shared_ptr<EmulatedCapture> capture_;  // of the newest record; null: none
  size_t captured_mark_ = 0;
};

// The lanes of a capture. The origin's runs in the stream of the launch, each other one in a stream of its own.
class EmulatedGraph final : public Graph {
 public:
  explicit EmulatedGraph(CapturedLanes lanes) : lanes_(std::move(lanes)) {
    for (size_t i = 1; i < lanes_.size(); ++i)
      threads_.push_back(std::make_unique<EmulatedStream>());
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      for (const CapturedStep& step : lanes_[lane])
        if (!step.work && !step.awaited) {
          mark_lanes_.resize(std::max(mark_lanes_.size(), step.mark + 1));
          mark_lanes_[step.mark] = lane;
        }
  }
  int64_t nodes() const override {
    int64_t count = 0;
    for (const std::vector<CapturedStep>& lane : lanes_)
      count += std::ranges::count_if(lane, [](const CapturedStep& s) { return bool(s.work); });
    return count;
  }
  void launch(Stream& stream) const override {
    EmulatedStream& origin = thread_of(stream);
    if (origin.capture().capture) fail_run("a graph is launched into a capture");
    const auto thread = [&](size_t lane) -> EmulatedStream& {
      return lane == 0 ? origin : *threads_[lane - 1];
    };
    std::vector<std::shared_ptr<Mark>> marks;
    for (const size_t lane : mark_lanes_) marks.push_back(std::make_shared<Mark>(thread(lane)));
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      for (const CapturedStep& step : lanes_[lane]) {
        if (step.work)
          thread(lane).submit(step.work);
        else if (step.awaited)
          thread(lane).submit([mark = marks[step.mark]] { mark->wait(); });
        else
          submit_mark(thread(lane), marks[step.mark]);
      }
  }

 private:
  CapturedLanes lanes_;
  std::vector<size_t> mark_lanes_;  // where each mark is reached
  std::vector<std::unique_ptr<EmulatedStream>> threads_;
};

class ThreadStream final : public Stream {
 public:
  void copy(void* to, const void* from, int64_t bytes) override {
    thread_.submit([=] { std::memmove(to, from, static_cast<size_t>(bytes)); });
  }
  void zero(void* at, int64_t bytes) override {
    thread_.submit([=] { std::memset(at, 0, static_cast<size_t>(bytes)); });
  }
  void wait(Event& event) override { static_cast<EmulatedEvent&>(event).hold(thread_); }
  void synchronize() override { thread_.synchronize(); }
  void* native() override { return &thread_; }
  bool begin_capture() override {
    EmulatedCapture::begin(thread_);
    return true;
  }
  bool capturing() override { return thread_.capture().capture != nullptr; }
  std::unique_ptr<Graph> end_capture() override {
    const std::shared_ptr<EmulatedCapture> capture = thread_.capture().capture;
    if (!capture) fail_run("a capture ends in a stream that takes part in none");
    return std::make_unique<EmulatedGraph>(capture->end(thread_));
  }

 private:
  EmulatedStream thread_;
};

class EmulatedDevice final : public HostMemoryDevice {
 public:
  DeviceKind kind() const override { return DeviceKind::emulated; }
  std::string name() const override { return "emulated"; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override {
    return std::make_unique<ThreadStream>();
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<EmulatedEvent>(); }
};

}  // namespace

std::unique_ptr<Device> make_emulated_device() {
  return std::make_unique<EmulatedDevice>();
}

}  // namespace dstrain
