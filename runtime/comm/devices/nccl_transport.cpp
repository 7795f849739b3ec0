#include "runtime/comm/devices/nccl_transport.h"

#include <nccl.h>

#include <chrono>
#include <thread>

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

class NcclTransport final : public StreamTransport {
 public:
  NcclTransport(Communicator& host, Device& device, const std::atomic<double>& deadline_seconds)
      : rank_(host.rank()), deadline_seconds_(deadline_seconds) {
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
    if (comm_ != nullptr) ::ncclCommAbort(comm_);
    comm_ = nullptr;
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

  int rank_;
  const std::atomic<double>& deadline_seconds_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<StreamTransport> connect_nccl(Communicator& host, Device& device,
                                              const std::atomic<double>& deadline_seconds) {
  return std::make_unique<NcclTransport>(host, device, deadline_seconds);
}

}  // namespace dstrain
