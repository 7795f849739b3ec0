#include "runtime/comm/devices/nccl_comm.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/comm/devices/nccl_blocks.h"
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

// A communicator of NCCL, until it is stopped. NCCL frees it then, whoever uses it: every call is made with the mutex.
struct Connection {
  std::mutex mutex;
  ncclComm_t comm = nullptr;
};

class NcclTransport final : public StreamTransport {
 public:
  NcclTransport(Communicator& host, Device& device, const std::atomic<double>& deadline_seconds)
      : host_(host), device_(device), deadline_seconds_(deadline_seconds) {
    ncclUniqueId id{};
    if (host.rank() == 0)
      call(
          "making an id", [&](ncclComm_t) { return ::ncclGetUniqueId(&id); }, false);
    static_assert(sizeof id % sizeof(int32_t) == 0);
    host.broadcast({&id, {static_cast<int64_t>(sizeof id / sizeof(int32_t))}, DType::i32}, 0)
        .wait();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a blocking call would never return if a peer is lost
    config.maxCTAs = most_nccl_blocks(host.size());
    device.attach_thread();
    try {
      call(
          "connecting the GPUs",
          [&](ncclComm_t) {
            return ::ncclCommInitRankConfig(&connection_->comm, host.size(), id, host.rank(),
                                            &config);
          },
          false);
    } catch (...) {
      stop();
      throw;
    }
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override { stop(); }  // nothing is under way after a good run

  void all_reduce(Tensor inout, Stream& stream) override {
    call("all_reduce", [&](ncclComm_t comm) {
      return ::ncclAllReduce(inout.data, inout.data, count(inout), type_of(inout.dtype), ncclSum,
                             comm, stream_of(stream));
    });
  }
  void reduce_scatter(Tensor in, Tensor out, Stream& stream) override {
    call("reduce_scatter", [&](ncclComm_t comm) {
      return ::ncclReduceScatter(in.data, out.data, count(out), type_of(in.dtype), ncclSum, comm,
                                 stream_of(stream));
    });
  }
  void all_gather(Tensor in, Tensor out, Stream& stream) override {
    call("all_gather", [&](ncclComm_t comm) {
      return ::ncclAllGather(in.data, out.data, count(in), type_of(in.dtype), comm,
                             stream_of(stream));
    });
  }
  void broadcast(Tensor inout, int root, Stream& stream) override {
    call("broadcast", [&](ncclComm_t comm) {
      return ::ncclBroadcast(inout.data, inout.data, count(inout), type_of(inout.dtype), root, comm,
                             stream_of(stream));
    });
  }
  void exchange(std::span<const Tensor> to, std::span<const Tensor> from, Stream& stream) override {
    call("messages", [&](ncclComm_t comm) {
      ncclResult_t first = ::ncclGroupStart();
      const auto note = [&](ncclResult_t code) {
        if (first == ncclSuccess && code != ncclInProgress) first = code;
      };
      for (size_t r = 0; r < to.size(); ++r) {
        const int peer = static_cast<int>(r);
        if (to[r])
          note(::ncclSend(to[r].data, count(to[r]), type_of(to[r].dtype), peer, comm,
                          stream_of(stream)));
        if (from[r])
          note(::ncclRecv(from[r].data, count(from[r]), type_of(from[r].dtype), peer, comm,
                          stream_of(stream)));
      }
      const ncclResult_t end = ::ncclGroupEnd();
      return first == ncclSuccess ? end : first;
    });
  }

  std::string failure() override {
    const std::lock_guard lock(connection_->mutex);
    if (connection_->comm == nullptr) return {};
    ncclResult_t state = ncclSuccess;
    ::ncclCommGetAsyncError(connection_->comm, &state);
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return refusal("a collective", state);
  }
  void stop() override {
    ncclComm_t comm = nullptr;
    {
      const std::lock_guard lock(connection_->mutex);
      std::swap(comm, connection_->comm);
    }
    if (comm != nullptr) ::ncclCommAbort(comm);
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
    bool refused = false;
    call("registering memory", [&](ncclComm_t comm) {
      const ncclResult_t code = functions_.enroll(comm, data, static_cast<size_t>(bytes), &handle);
      refused = code != ncclSuccess && code != ncclInProgress;
      return refused ? ncclSuccess : code;
    });
    if (refused || handle == nullptr) return nullptr;
    return {handle, [withdraw = functions_.withdraw,
                     weak = std::weak_ptr<Connection>(connection_)](void* registered) {
              const std::shared_ptr<Connection> connection = weak.lock();
              if (!connection) return;
              const std::lock_guard lock(connection->mutex);
              if (connection->comm != nullptr) withdraw(connection->comm, registered);
            }};
  }

 private:
  // Gives NCCL a call, and waits until it is accepted: at most until the deadline, and until a peer stops the group.
  // `connected`: the call needs the communicator, which may have been stopped.
  template <class Call>
  void call(const char* what, Call&& give, bool connected = true) {
    const auto begin = Clock::now();
    ncclResult_t code = ncclSuccess;
    {
      const std::lock_guard lock(connection_->mutex);
      if (connected) check_connected();
      code = give(connection_->comm);
    }
    while (code == ncclInProgress) {
      const double deadline = deadline_seconds_;
      if (std::chrono::duration<double>(Clock::now() - begin).count() > deadline)
        fail_run("NCCL: {} took more than {} s", what, deadline);
      if (const std::string reason = host_.abort_reason(); !reason.empty()) fail_run("{}", reason);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      const std::lock_guard lock(connection_->mutex);
      check_connected();
      if (::ncclCommGetAsyncError(connection_->comm, &code) != ncclSuccess) break;
    }
    if (code == ncclSuccess) return;
    const std::lock_guard lock(connection_->mutex);
    fail_run("{}", refusal(what, code));
  }
  void check_connected() const {
    if (connection_->comm == nullptr) fail_run("NCCL: the communicator was stopped");
  }
  std::string refusal(const char* what, ncclResult_t code) const {
    return fmt::format("NCCL: {} failed on rank {}: {} ({})", what, host_.rank(),
                       ::ncclGetErrorString(code), ::ncclGetLastError(connection_->comm));
  }

  Communicator& host_;
  Device& device_;
  const std::atomic<double>& deadline_seconds_;
  std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
  MemoryFunctions functions_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device,
                                                     std::shared_ptr<const RankSum> sum) {
  // A step's graph has the collectives of several communicators. No two launches of one communicator are ever under way
  // at a time, as a step ends before the next begins; NCCL's support of that would let its communicators wait for each
  // other within the graph. NCCL reads the variable once.
  ::setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  const auto connect = [](Communicator& ranks, Device& gpu,
                          const std::atomic<double>& deadline_seconds) {
    return std::make_unique<NcclTransport>(ranks, gpu, deadline_seconds);
  };
  return std::make_unique<StreamComm>(host, device, connect, std::move(sum));
}

}  // namespace dstrain
