#include "runtime/core/devices/emulated_device.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/core/devices/emulated_stream.h"
#include "runtime/core/devices/host_memory_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

EmulatedStream& thread_of(Stream& stream) {
  return *static_cast<EmulatedStream*>(stream.native());
}

// One record of an event: reached when its stream has done the work before it, lost if that work failed.
class Mark {
 public:
  explicit Mark(EmulatedStream& origin) : origin_(origin) {}

  void settle(bool reached) {
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::open) state_ = reached ? State::reached : State::lost;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::open; });
    if (state_ == State::reached) return;
    lock.unlock();
    origin_.synchronize();  // throws what the stream failed with
  }

 private:
  enum class State { open, reached, lost };
  EmulatedStream& origin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::open;
};

// The work item that sets a mark to reached. If it is dropped without running, the destructor sets the mark to
// lost, so that no thread waits for it.
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

class EmulatedEvent final : public Event {
 public:
  void record(Stream& stream) override {
    mark_ = std::make_shared<Mark>(thread_of(stream));
    thread_of(stream).submit([reach = std::make_shared<Reach>(mark_)] { reach->run(); });
  }
  void synchronize() override {
    if (mark_) mark_->wait();
  }
  std::shared_ptr<Mark> mark() const { return mark_; }

 private:
  std::shared_ptr<Mark> mark_;
};

class EmulatedGraph final : public Graph {
 public:
  explicit EmulatedGraph(std::vector<std::function<void()>> work) : work_(std::move(work)) {}
  void launch(Stream& stream) const override {
    for (const auto& work : work_) thread_of(stream).submit(work);
  }

 private:
  std::vector<std::function<void()>> work_;
};

class ThreadStream final : public Stream {
 public:
  void copy(void* to, const void* from, int64_t bytes) override {
    thread_.submit([=] { std::memmove(to, from, static_cast<size_t>(bytes)); });
  }
  void zero(void* at, int64_t bytes) override {
    thread_.submit([=] { std::memset(at, 0, static_cast<size_t>(bytes)); });
  }
  void wait(Event& event) override {
    if (auto mark = static_cast<EmulatedEvent&>(event).mark())
      thread_.submit([mark = std::move(mark)] { mark->wait(); });
  }
  void synchronize() override { thread_.synchronize(); }
  void* native() override { return &thread_; }
  bool begin_capture() override {
    thread_.begin_capture();
    return true;
  }
  std::unique_ptr<Graph> end_capture() override {
    return std::make_unique<EmulatedGraph>(thread_.end_capture());
  }

 private:
  EmulatedStream thread_;
};

class EmulatedDevice final : public HostMemoryDevice {
 public:
  DeviceKind kind() const override { return DeviceKind::emulated; }
  std::string name() const override { return "emulated"; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ThreadStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<EmulatedEvent>(); }
};

}  // namespace

std::unique_ptr<Device> make_emulated_device() {
  return std::make_unique<EmulatedDevice>();
}

}  // namespace dstrain
