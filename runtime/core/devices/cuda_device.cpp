// The CUDA runtime is linked statically and opens the driver at its first call, so that the program starts on a
// machine without one.
#include "runtime/core/devices/cuda_device.h"

#include <cuda_runtime.h>
#include <stdlib.h>

#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

void check_cuda(cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return;
  fail_run("CUDA: {} failed: {} ({})", what, ::cudaGetErrorString(code), ::cudaGetErrorName(code));
}

cudaStream_t stream_of(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

class CudaEvent final : public Event {
 public:
  CudaEvent() {
    check_cuda(::cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { ::cudaEventDestroy(event_); }
  void record(Stream& stream) override {
    check_cuda(::cudaEventRecord(event_, stream_of(stream)), "recording an event");
  }
  void synchronize() override { check_cuda(::cudaEventSynchronize(event_), "a kernel"); }
  bool reached() override { return ::cudaEventQuery(event_) != cudaErrorNotReady; }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    const cudaError_t counted = ::cudaGraphGetNodes(graph, nullptr, &nodes_);
    // Without the flag all nodes have the priority of the stream of the launch, and communication waits behind kernels.
    const cudaError_t made =
        ::cudaGraphInstantiate(&graph_, graph, cudaGraphInstantiateFlagUseNodePriority);
    ::cudaGraphDestroy(graph);
    check_cuda(counted, "counting the nodes of a step's graph");
    check_cuda(made, "instantiating the graph of a step");
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { ::cudaGraphExecDestroy(graph_); }
  void launch(Stream& stream) const override {
    check_cuda(::cudaGraphLaunch(graph_, stream_of(stream)), "launching the graph of a step");
  }
  int64_t nodes() const override { return static_cast<int64_t>(nodes_); }

 private:
  cudaGraphExec_t graph_ = nullptr;
  size_t nodes_ = 0;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(StreamPriority priority) {
    int lowest = 0, highest = 0;  // the lowest is CUDA's default
    check_cuda(::cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking about priorities");
    check_cuda(::cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                              priority == StreamPriority::high ? highest : lowest),
               "making a stream");
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override { ::cudaStreamDestroy(stream_); }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (to == from || bytes <= 0) return;
    check_cuda(::cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
               "a copy");
  }
  void zero(void* at, int64_t bytes) override {
    check_cuda(::cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), stream_), "zeroing");
  }
  void wait(Event& event) override {
    check_cuda(::cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).get()),
               "waiting for an event");
  }
  void synchronize() override { check_cuda(::cudaStreamSynchronize(stream_), "a kernel"); }
  void* native() override { return stream_; }
  bool begin_capture() override {
    check_cuda(::cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
               "beginning to capture a step");
    return true;
  }
  std::unique_ptr<Graph> end_capture() override {
    cudaGraph_t graph = nullptr;
    check_cuda(::cudaStreamEndCapture(stream_, &graph), "capturing a step");
    return std::make_unique<CudaGraph>(graph);
  }
  bool capturing() override {
    cudaStreamCaptureStatus status{};
    check_cuda(::cudaStreamIsCapturing(stream_, &status), "asking about a stream");
    return status != cudaStreamCaptureStatusNone;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    attach_thread();
    cudaDeviceProp properties{};
    check_cuda(::cudaGetDeviceProperties(&properties, index), "asking for the GPU's name");
    name_ = properties.name;
    uuid_ = properties.uuid;
  }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return name_; }
  DeviceBytes memory() const override {
    size_t free = 0, total = 0;
    check_cuda(::cudaMemGetInfo(&free, &total), "asking for free memory");
    return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
  }
  Memory allocate(int64_t bytes, const std::string& what) override {
    if (bytes <= 0) return {};
    void* data = nullptr;
    if (::cudaMalloc(&data, static_cast<size_t>(bytes)) != cudaSuccess) {
      ::cudaGetLastError();  // or it would be reported again by a later call
      fail_run(
          "cannot reserve {} of {} for {}: {} are free; use more GPUs, a higher ZeRO stage, "
          "recompute or a smaller micro-batch",
          bytes_text(static_cast<double>(bytes)), name_, what,
          bytes_text(static_cast<double>(memory().free)));
    }
    Memory memory =
        Memory::adopt({static_cast<std::byte*>(data), [](std::byte* p) { ::cudaFree(p); }}, bytes);
    check_cuda(::cudaMemset(data, 0, static_cast<size_t>(bytes)), "zeroing memory");
    check_cuda(::cudaDeviceSynchronize(), "zeroing memory");
    return memory;
  }
  Memory pinned(int64_t bytes, const std::string& what) override {
    if (bytes <= 0) return {};
    void* data = nullptr;
    check_cuda(::cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable),
               fmt::format("reserving {} bytes of pinned host memory for {}", bytes, what));
    return Memory::adopt({static_cast<std::byte*>(data), [](std::byte* p) { ::cudaFreeHost(p); }},
                         bytes);
  }
  std::shared_ptr<void> pin(std::byte* data, int64_t bytes) override {
    if (bytes <= 0) return nullptr;
    const cudaError_t code =
        ::cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
    if (code != cudaSuccess) {
      ::cudaGetLastError();  // or it would be reported again by a later call
      log::warn(
          "{} of host memory cannot be pinned ({}): copies to and from the GPU are slower; "
          "look at the limit of locked memory (ulimit -l)",
          bytes_text(static_cast<double>(bytes)), ::cudaGetErrorString(code));
      return nullptr;
    }
    return {data, [](void* p) { ::cudaHostUnregister(p); }};
  }
  void populate(const Memory&, int) const override {}
  void download(void* host, const void* from, int64_t bytes) override {
    check_cuda(::cudaMemcpy(host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
               "a copy to the host");
  }
  void upload(void* to, const void* host, int64_t bytes) override {
    check_cuda(::cudaMemcpy(to, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
               "a copy to the GPU");
    check_cuda(::cudaStreamSynchronize(nullptr), "a copy to the GPU");  // small ones return early
  }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return std::make_unique<CudaStream>(priority);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }
  void attach_thread() override { check_cuda(::cudaSetDevice(index_), "choosing the GPU"); }

  const cudaUUID_t& uuid() const { return uuid_; }

 private:
  int index_;
  cudaUUID_t uuid_{};
  std::string name_;
};

}  // namespace

bool has_cuda_backend() {
  return true;
}

int cuda_device_count() {
  // The driver reads this when it starts. Streams beyond the number of connections share one, where work that waits
  // for a peer holds up another stream's; the channels of a pipeline are more than the default of 8.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  if (::cudaGetDeviceCount(&count) == cudaSuccess) return count;
  ::cudaGetLastError();
  return 0;
}

std::array<double, 4> cuda_identity(const Device& device) {
  std::array<uint32_t, 4> words{};
  static_assert(sizeof words == sizeof(cudaUUID_t));
  std::memcpy(words.data(), &static_cast<const CudaDevice&>(device).uuid(), sizeof words);
  return {static_cast<double>(words[0]), static_cast<double>(words[1]),
          static_cast<double>(words[2]), static_cast<double>(words[3])};
}

std::string why_no_cuda() {
  int count = 0;
  const cudaError_t code = ::cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return {};
  ::cudaGetLastError();
  return fmt::format(
      "--device cuda: this machine has no GPU that CUDA can use ({}); look at "
      "nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu",
      code == cudaSuccess ? "none is visible" : ::cudaGetErrorString(code));
}

std::unique_ptr<Device> make_cuda_device(int index) {
  if (const std::string reason = why_no_cuda(); !reason.empty()) throw UserError(reason);
  return std::make_unique<CudaDevice>(index);
}

}  // namespace dstrain
