// Device: a CPU or GPU with memory, streams and events. Streams run work in order and asynchronously to the
// host; events order streams among each other. The CPU uses the host's memory, and its streams have done
// their work when a call returns, so that the executor has one code path for all devices. The emulated
// device is for tests: its streams are threads, so that tests find a missing synchronization without a GPU.
// Calls throw RunError if the device refuses; the failure of a kernel is reported by a later call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/core/devices/staging.h"
#include "runtime/core/memory.h"

namespace dstrain {

// The kind of a device.
enum class DeviceKind : uint8_t { cpu, emulated, cuda };

class Device;
class Stream;

// Marks a point in the work of a stream, for which the host or another stream can wait. An event that was
// never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  // Sets the event to the point after all work submitted to `stream` so far.
  virtual void record(Stream& stream) = 0;
  // Waits until the point is reached.
  virtual void synchronize() = 0;
  // Returns whether the point is reached, or the stream has failed before it.
  virtual bool reached() = 0;
};

// Captured work, which can be replayed.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream& stream) const = 0;
  // Returns the number of its kernels, copies and other pieces of work.
  virtual int64_t nodes() const = 0;
};

// Which of two streams' kernels a device runs first if it cannot run both. Communication is high, as other ranks wait
// for it; everything else is normal.
enum class StreamPriority : uint8_t { normal, high };

// A queue of work on a device.
class Stream {
 public:
  virtual ~Stream() = default;
  // Copies between any two of device memory and pinned host memory.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* at, int64_t bytes) = 0;
  // Work submitted later begins after the point that `event` has now.
  virtual void wait(Event& event) = 0;
  virtual void synchronize() = 0;
  // Returns the cudaStream_t or EmulatedStream*; null on the CPU.
  virtual void* native() = 0;
  // Between the two calls, submitted work is recorded instead of run, and so is that of every stream that waits for
  // an event recorded in the capture. Before the end this stream must have waited for the others' work. Nobody may
  // wait in the capture for an event of before it, nor outside for an event that was last recorded in one; both are
  // errors of the device. Copies of memory that is not pinned are no part of a capture. begin_capture() returns
  // false if the device has no graphs.
  virtual bool begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  // Returns whether submitted work is recorded now.
  virtual bool capturing() = 0;
};

// Bytes of a device's memory.
struct DeviceBytes {
  int64_t total = 0, free = 0;
};

// Memory that the host reaches by copies alone.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  // Blocking copies of any host memory. The caller must have waited for what uses the other side.
  virtual void download(void* host, const void* from, int64_t bytes) = 0;
  virtual void upload(void* to, const void* host, int64_t bytes) = 0;
  // Returns the device whose streams copy the memory; null: nothing copies it beside the host.
  virtual Device* device() { return nullptr; }
};

// A device of this process.
class Device : public RemoteMemory {
 public:
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "NVIDIA H100 80GB HBM3"; "cpu"
  // Returns the size of the device's own memory, and how much of it is free; 0 if it uses the host's.
  virtual DeviceBytes memory() const = 0;

  // Returns zero-filled memory of the device, 256-byte aligned. `what` names it in errors.
  virtual Memory allocate(int64_t bytes, const std::string& what) = 0;
  // Returns host memory that streams can copy from and to.
  virtual Memory pinned(int64_t bytes, const std::string& what) = 0;
  // Pins existing host memory for streams, as long as the returned object lives. Returns null, after a warning, if the
  // system refuses: streams then copy it more slowly.
  virtual std::shared_ptr<void> pin(std::byte* data, int64_t bytes) = 0;
  // Makes the pages of `memory` present now, with `threads` threads (Memory::populate).
  virtual void populate(const Memory& memory, int threads) const = 0;

  virtual std::unique_ptr<Stream> make_stream(StreamPriority priority = StreamPriority::normal) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Every thread must call this before it uses the device's streams and kernels.
  virtual void attach_thread() = 0;

  Device* device() final { return this; }
  // Returns pinned buffers for copies between the device and the host. They belong to the device, and are made when
  // they are first wanted.
  StagingPool::Lease staging() { return staging_.lease(*this); }

  // Returns whether the host can access the device's memory directly.
  bool is_host() const { return kind() == DeviceKind::cpu; }

 private:
  StagingPool staging_;
};

}  // namespace dstrain
