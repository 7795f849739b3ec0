// Device: where a plan's memory lies and its kernels run. Streams run work in order beside the host;
// events order streams among each other. The CPU is a device whose memory is the host's and whose
// streams have done everything when a call returns, so whoever drives a device has one code path. The
// emulated device is for tests: memory of its own and threads for streams, so that an ordering or a
// copy that somebody forgot shows on a machine without a GPU.
// Every call throws RunError where the device refuses. A kernel's failure shows at a later call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/core/memory.h"

namespace dstrain {

enum class DeviceKind : uint8_t { cpu, emulated, cuda };

class Stream;

// A point in a stream's work; one that was never recorded is reached.
class Event {
 public:
  virtual ~Event() = default;
  // The point after everything that was given to `stream` so far; an earlier record is forgotten.
  virtual void record(Stream& stream) = 0;
  // Returns when the newest recorded point is reached.
  virtual void synchronize() = 0;
};

// Captured work of one stream, replayed as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream& stream) const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Between any two of device memory and pinned host memory.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void zero(void* at, int64_t bytes) = 0;
  // Later work of this stream begins after the point that `event` names now.
  virtual void wait(Event& event) = 0;
  virtual void synchronize() = 0;
  // cudaStream_t, EmulatedStream*; null on the CPU.
  virtual void* native() = 0;
  // Between the two calls what is given to the stream is noted down instead of run; no event, and no
  // copy from or to memory that is not pinned. begin_capture() answers false where there is no such
  // thing.
  virtual bool begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
};

struct DeviceBytes {
  int64_t total = 0, free = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "NVIDIA H100 80GB HBM3"; "cpu"
  // What the device has and what nobody has reserved; not known (0) where it is the host's.
  virtual DeviceBytes memory() const = 0;

  // Zero-filled memory of the device, 256-byte aligned.
  virtual Memory allocate(int64_t bytes, const std::string& what) = 0;
  // Host memory that streams copy from and to.
  virtual Memory pinned(int64_t bytes, const std::string& what) = 0;
  // Makes host memory that exists fit for streams, while the answer lives.
  virtual std::shared_ptr<void> pin(std::byte* data, int64_t bytes) = 0;
  // Makes `memory` present now, with `threads` threads, where that is not a matter of course.
  virtual void populate(const Memory& memory, int threads) const = 0;

  // Blocking copies of any host memory; the streams that use the device's side have been synchronized.
  virtual void download(void* host, const void* from, int64_t bytes) = 0;
  virtual void upload(void* to, const void* host, int64_t bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Before a thread's first use of the device's streams and kernels.
  virtual void attach_thread() = 0;

  // Whether the host reads and writes the device's memory itself.
  bool is_host() const { return kind() == DeviceKind::cpu; }
};

std::unique_ptr<Device> make_cpu_device();
std::unique_ptr<Device> make_emulated_device();
// GPU `index` of this process. Throws UserError with cuda_problem() where there is none.
std::unique_ptr<Device> make_cuda_device(int index);

// Whether this build can plan for GPUs, be there one or not.
bool has_cuda_backend();
// GPUs that this process can use; 0 where this build has no CUDA, or the machine no driver.
int cuda_devices();
// Why there are none, and what to do about it; empty where there are.
std::string cuda_problem();

// The device that a run's setting (cpu, emulated, cuda) names; `index` counts GPUs.
std::unique_ptr<Device> make_device(const std::string& setting, int index);

}  // namespace dstrain
