#include "runtime/comm/devices/nccl_comm.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/comm/devices/stream_comm.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
  }
  return ncclUint8;
}

cudaStream_t stream_of(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

size_t count(const Tensor& t) {
  return static_cast<size_t>(t.elements());
}

// The functions of memory that NCCL's operations reach without a copy. They are looked up, because NCCL has them from
// 2.19 on only; without them memory is the device's, and not registered.
struct MemoryFunctions {
  template <class F>
  static F* find(const char* name) {
    return reinterpret_cast<F*>(::dlsym(RTLD_DEFAULT, name));
  }
  ncclResult_t (*allocate)(void**, size_t) = find<ncclResult_t(void**, size_t)>("ncclMemAlloc");
  ncclResult_t (*release)(void*) = find<ncclResult_t(void*)>("ncclMemFree");
  ncclResult_t (*enroll)(ncclComm_t, void*, size_t, void**) =
      find<ncclResult_t(ncclComm_t, void*, size_t, void**)>("ncclCommRegister");
  ncclResult_t (*withdraw)(ncclComm_t,
                           void*) = find<ncclResult_t(ncclComm_t, void*)>("ncclCommDeregister");
};

// A communicator of NCCL, as long as it is not stopped.
struct Connection {
  std::mutex mutex;
  ncclComm_t comm = nullptr;
};

class NcclTransport final : public StreamTransport {
 public:
  NcclTransport(Communicator& host, Device& device, const std::atomic<double>& deadline_seconds)
      : device_(device), rank_(host.rank()), deadline_seconds_(deadline_seconds) {
    ncclUniqueId id{};
    if (rank_ == 0) settle(::ncclGetUniqueId(&id), "making an id");
    static_assert(sizeof id % sizeof(int32_t) == 0);
    host.broadcast({&id, {static_cast<int64_t>(sizeof id / sizeof(int32_t))}, DType::i32}, 0)
        .wait();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a blocking call would never return if a peer is lost
    device.attach_thread();
    settle(::ncclCommInitRankConfig(&comm_, host.size(), id, rank_, &config),
           "connecting the GPUs");
    connection_->comm = comm_;
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override { stop(); }  // nothing is under way after a good run

  void all_reduce(Tensor inout, Stream& stream) override {
    settle(::ncclAllReduce(inout.data, inout.data, count(inout), type_of(inout.dtype), ncclSum,
                           comm_, stream_of(stream)),
           "all_reduce");
  }
  void reduce_scatter(Tensor in, Tensor out, Stream& stream) override {
    settle(::ncclReduceScatter(in.data, out.data, count(out), type_of(in.dtype), ncclSum, comm_,
                               stream_of(stream)),
           "reduce_scatter");
  }
  void all_gather(Tensor in, Tensor out, Stream& stream) override {
    settle(
        ::ncclAllGather(in.data, out.data, count(in), type_of(in.dtype), comm_, stream_of(stream)),
        "all_gather");
  }
  void broadcast(Tensor inout, int root, Stream& stream) override {
    settle(::ncclBroadcast(inout.data, inout.data, count(inout), type_of(inout.dtype), root, comm_,
                           stream_of(stream)),
           "broadcast");
  }
  void exchange(std::span<const Tensor> to, std::span<const Tensor> from, Stream& stream) override {
    ncclResult_t first = ::ncclGroupStart();
    const auto note = [&](ncclResult_t code) {
      if (first == ncclSuccess && code != ncclInProgress) first = code;
    };
    for (size_t r = 0; r < to.size(); ++r) {
      const int peer = static_cast<int>(r);
      if (to[r])
        note(::ncclSend(to[r].data, count(to[r]), type_of(to[r].dtype), peer, comm_,
                        stream_of(stream)));
      if (from[r])
        note(::ncclRecv(from[r].data, count(from[r]), type_of(from[r].dtype), peer, comm_,
                        stream_of(stream)));
    }
    const ncclResult_t end = ::ncclGroupEnd();
    settle(first == ncclSuccess ? end : first, "messages");
  }

  std::string failure() override {
    if (comm_ == nullptr) return {};
    ncclResult_t state = ncclSuccess;
    ::ncclCommGetAsyncError(comm_, &state);
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return fmt::format("NCCL: a collective failed on rank {}: {} ({})", rank_,
                       ::ncclGetErrorString(state), ::ncclGetLastError(comm_));
  }
  void stop() override {
    const std::lock_guard lock(connection_->mutex);
    if (comm_ != nullptr) ::ncclCommAbort(comm_);
    comm_ = connection_->comm = nullptr;
  }

  Memory allocate(int64_t bytes, const std::string& what) override {
    void* data = nullptr;
    if (bytes <= 0 || functions_.allocate == nullptr || functions_.release == nullptr ||
        functions_.allocate(&data, static_cast<size_t>(bytes)) != ncclSuccess || data == nullptr)
      return device_.allocate(bytes, what);
    Memory memory = Memory::adopt({static_cast<std::byte*>(data),
                                   [release = functions_.release](std::byte* p) { release(p); }},
                                  bytes);
    if (::cudaMemset(data, 0, static_cast<size_t>(bytes)) != cudaSuccess ||
        ::cudaDeviceSynchronize() != cudaSuccess)
      fail_run("CUDA: zeroing {} bytes for {} failed", bytes, what);
    return memory;
  }
  std::shared_ptr<void> register_memory(std::byte* data, int64_t bytes) override {
    if (functions_.enroll == nullptr || functions_.withdraw == nullptr) return nullptr;
    void* handle = nullptr;
    const ncclResult_t code = functions_.enroll(comm_, data, static_cast<size_t>(bytes), &handle);
    if (code != ncclSuccess && code != ncclInProgress) return nullptr;
    settle(code, "registering memory");
    if (handle == nullptr) return nullptr;
    return {handle, [withdraw = functions_.withdraw,
                     weak = std::weak_ptr<Connection>(connection_)](void* registered) {
              const std::shared_ptr<Connection> connection = weak.lock();
              if (!connection) return;
              const std::lock_guard lock(connection->mutex);
              if (connection->comm != nullptr) withdraw(connection->comm, registered);
            }};
  }

 private:
  // Waits until NCCL has accepted a call, at most until the deadline.
  void settle(ncclResult_t code, const char* what) {
    const auto begin = Clock::now();
    while (code == ncclInProgress) {
      const double deadline = deadline_seconds_;
      if (std::chrono::duration<double>(Clock::now() - begin).count() > deadline)
        fail_run("NCCL: {} took more than {} s", what, deadline);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (::ncclCommGetAsyncError(comm_, &code) != ncclSuccess) break;
    }
    if (code != ncclSuccess)
      fail_run("NCCL: {} failed on rank {}: {} ({})", what, rank_, ::ncclGetErrorString(code),
               ::ncclGetLastError(comm_));
  }

  Device& device_;
  int rank_;
  const std::atomic<double>& deadline_seconds_;
  ncclComm_t comm_ = nullptr;
  std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
  MemoryFunctions functions_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device,
                                                     std::shared_ptr<const RankSum> sum) {
  const auto connect = [](Communicator& ranks, Device& gpu,
                          const std::atomic<double>& deadline_seconds) {
    return std::make_unique<NcclTransport>(ranks, gpu, deadline_seconds);
  };
  return std::make_unique<StreamComm>(host, device, connect, std::move(sum));
}

}  // namespace dstrain
