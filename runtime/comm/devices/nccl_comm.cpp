#include "runtime/comm/devices/nccl_comm.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/operation.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kWatchInterval{200};

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

void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) fail_run("CUDA: {} failed: {}", what, ::cudaGetErrorString(code));
}

class NcclComm final : public Communicator, public StreamCollectives {
 public:
  NcclComm(Communicator& host, Device& device)
      : host_(host), device_(device), stream_(device.make_stream()) {
    connect();
  }
  // A part of `parent`, with the host communicator of its ranks.
  NcclComm(std::unique_ptr<Communicator> host, NcclComm& parent)
      : parent_(&parent),
        own_host_(std::move(host)),
        host_(*own_host_),
        device_(parent.device_),
        stream_(device_.make_stream()) {
    deadline_seconds_ = parent.deadline_seconds_.load();
    connect();
    NcclComm& whole = world();
    const std::lock_guard lock(whole.parts_mutex_);
    whole.parts_.push_back(this);
  }
  void connect() {
    ncclUniqueId id{};
    if (rank() == 0) settle(::ncclGetUniqueId(&id), "making an id");
    static_assert(sizeof id % sizeof(int32_t) == 0);
    host_.broadcast({&id, {static_cast<int64_t>(sizeof id / sizeof(int32_t))}, DType::i32}, 0)
        .wait();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // a blocking call would never return if a peer is lost
    device_.attach_thread();
    settle(::ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "connecting the GPUs");
    check_cuda(::cudaEventCreateWithFlags(&newest_, cudaEventDisableTiming), "making an event");
    watcher_ = std::thread([this] { watch(); });
    if (size() == 2) connect_messages();
  }
  // Sends a message each way. NCCL connects two GPUs at their first message, and the host waits for that: later, when
  // a rank posts what it receives before it sends, neither would be there for the other.
  void connect_messages() {
    const Memory memory = device_.allocate(sizeof(int32_t), "the first message");
    const Tensor word{memory.data(), {1}, DType::i32};
    for (const int sender : {0, 1}) {
      start(Collective::message, 0, *stream_, [&] {
        return rank() == sender
                   ? ::ncclSend(word.data, 1, ncclInt32, 1 - rank(), comm_, stream_of(*stream_))
                   : ::ncclRecv(word.data, 1, ncclInt32, 1 - rank(), comm_, stream_of(*stream_));
      });
    }
    stream_->synchronize();
    check_failure();
  }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
  ~NcclComm() override {
    if (parent_ != nullptr) {
      NcclComm& whole = world();
      const std::lock_guard lock(whole.parts_mutex_);
      std::erase(whole.parts_, this);
    }
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    if (comm_) ::ncclCommAbort(comm_);  // nothing is under way after a good run
    ::cudaEventDestroy(newest_);
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::unique_ptr<Communicator> split(std::span<const int> ranks) override {
    check_failure();
    return std::make_unique<NcclComm>(host_.split(ranks), *this);
  }
  Memory allocate(int64_t bytes, const std::string& what) override {
    return device_.allocate(bytes, what);
  }
  StreamCollectives* on_stream() override { return this; }

  void all_reduce(Tensor inout, Stream& stream) override {
    start(Collective::all_reduce, inout.bytes(), stream, [&] {
      return ::ncclAllReduce(inout.data, inout.data, count(inout), type_of(inout.dtype), ncclSum,
                             comm_, stream_of(stream));
    });
  }
  void reduce_scatter(Tensor in, Tensor out, Stream& stream) override {
    start(Collective::reduce_scatter, in.bytes(), stream, [&] {
      return ::ncclReduceScatter(in.data, out.data, count(out), type_of(in.dtype), ncclSum, comm_,
                                 stream_of(stream));
    });
  }
  void all_gather(Tensor in, Tensor out, Stream& stream) override {
    start(Collective::all_gather, out.bytes(), stream, [&] {
      return ::ncclAllGather(in.data, out.data, count(in), type_of(in.dtype), comm_,
                             stream_of(stream));
    });
  }
  void all_to_all(Tensor in, Tensor out, Stream& stream) override {
    check(in.dtype == out.dtype && in.elements() == out.elements() && in.elements() % size() == 0,
          "all_to_all of {} elements to {} on {} ranks", in.elements(), out.elements(), size());
    start(Collective::all_to_all, in.bytes(), stream,
          [&] { return exchange_slices(in, out, stream_of(stream)); });
  }
  void send(Tensor in, Stream& stream) override {
    check(size() == 2, "a message in a communicator of {} ranks", size());
    start(Collective::message, in.bytes(), stream, [&] {
      return ::ncclSend(in.data, count(in), type_of(in.dtype), 1 - rank(), comm_,
                        stream_of(stream));
    });
  }
  void recv(Tensor out, Stream& stream) override {
    check(size() == 2, "a message in a communicator of {} ranks", size());
    // The sender counts the bytes.
    start(Collective::message, 0, stream, [&] {
      return ::ncclRecv(out.data, count(out), type_of(out.dtype), 1 - rank(), comm_,
                        stream_of(stream));
    });
  }

  Work all_reduce(Tensor inout) override {
    all_reduce(inout, *stream_);
    return complete();
  }
  Work reduce_scatter(Tensor in, Tensor out) override {
    reduce_scatter(in, out, *stream_);
    return complete();
  }
  Work all_gather(Tensor in, Tensor out) override {
    all_gather(in, out, *stream_);
    return complete();
  }
  Work all_to_all(Tensor in, Tensor out) override {
    all_to_all(in, out, *stream_);
    return complete();
  }
  Work broadcast(Tensor inout, int root) override {
    start(Collective::broadcast, inout.bytes(), *stream_, [&] {
      return ::ncclBroadcast(inout.data, inout.data, count(inout), type_of(inout.dtype), root,
                             comm_, stream_of(*stream_));
    });
    return complete();
  }
  Work send(Tensor in) override {
    send(in, *stream_);
    return complete();
  }
  Work recv(Tensor out) override {
    recv(out, *stream_);
    return complete();
  }
  void barrier() override { host_.barrier(); }
  void wait_for(int64_t) override { check_failure(); }
  bool poll_for(int64_t) override {
    check_failure();
    return true;
  }
  void gather_values(std::span<const double> mine, std::span<double> all) override {
    check_failure();
    host_.gather_values(mine, all);
  }
  void abort(const std::string& reason) override {
    stop_all(reason);
    host_.abort(reason);
  }
  int64_t wire_bytes() const override { return wire_bytes_; }
  void set_deadline(double seconds) override {
    NcclComm& whole = world();
    whole.deadline_seconds_ = seconds;
    const std::lock_guard lock(whole.parts_mutex_);
    for (NcclComm* part : whole.parts_) part->deadline_seconds_ = seconds;
    host_.set_deadline(seconds);
  }
  void set_threads(int threads) override { host_.set_threads(threads); }
  void report_to(RankSlot* slot) override { host_.report_to(slot); }
  void finish() override { host_.finish(); }
  void check_failure() override {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) fail_run("{}", failure_);
  }
  void abandon() override { stop_all("this rank has failed"); }

 private:
  static size_t count(const Tensor& t) { return static_cast<size_t>(t.elements()); }

  // A message from each rank to each, as one operation.
  ncclResult_t exchange_slices(const Tensor& in, const Tensor& out, cudaStream_t stream) {
    const size_t n = count(in) / static_cast<size_t>(size());
    const auto bytes = static_cast<int64_t>(n) * size_of(in.dtype);
    ncclResult_t first = ::ncclGroupStart();
    const auto note = [&](ncclResult_t code) {
      if (first == ncclSuccess && code != ncclInProgress) first = code;
    };
    for (int r = 0; r < size(); ++r) {
      note(::ncclSend(in.as<std::byte>() + r * bytes, n, type_of(in.dtype), r, comm_, stream));
      note(::ncclRecv(out.as<std::byte>() + r * bytes, n, type_of(out.dtype), r, comm_, stream));
    }
    const ncclResult_t end = ::ncclGroupEnd();
    return first == ncclSuccess ? end : first;
  }

  template <class Call>
  void start(Collective kind, int64_t whole_bytes, Stream& stream, Call&& call) {
    check_failure();
    {
      const std::lock_guard lock(mutex_);
      settle_locked(call(), std::string(name_of(kind)));
      cudaStreamCaptureStatus capture{};
      check_cuda(::cudaStreamIsCapturing(stream_of(stream), &capture), "asking about a stream");
      if (capture == cudaStreamCaptureStatusNone) {
        check_cuda(::cudaEventRecord(newest_, stream_of(stream)), "recording an event");
        under_way_since_ = Clock::now();
      }
    }
    const int64_t bytes = ring_bytes(kind, whole_bytes, size());
    for (NcclComm* comm = this; comm != nullptr; comm = comm->parent_) comm->wire_bytes_ += bytes;
  }
  Work complete() {
    stream_->synchronize();
    check_failure();
    return {this, 0};
  }

  // Waits until NCCL has accepted a call, at most until the deadline.
  void settle(ncclResult_t code, const std::string& what) {
    const std::lock_guard lock(mutex_);
    settle_locked(code, what);
  }
  void settle_locked(ncclResult_t code, const std::string& what) {
    const auto begin = Clock::now();
    while (code == ncclInProgress) {
      if (seconds_since(begin) > deadline_seconds_) {
        stop_locked(fmt::format("NCCL: {} took more than {} s", what, deadline_seconds_));
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (::ncclCommGetAsyncError(comm_, &code) != ncclSuccess) break;
    }
    if (code != ncclSuccess && failure_.empty())
      stop_locked(fmt::format("NCCL: {} failed on rank {}: {} ({})", what, rank(),
                              ::ncclGetErrorString(code), ::ncclGetLastError(comm_)));
    if (!failure_.empty()) fail_run("{}", failure_);
  }

  void watch() {
    device_.attach_thread();
    std::unique_lock lock(mutex_);
    while (!closing_) {
      changed_.wait_for(lock, kWatchInterval);
      if (!failure_.empty() || !comm_) continue;
      ncclResult_t state = ncclSuccess;
      ::ncclCommGetAsyncError(comm_, &state);
      if (state != ncclSuccess && state != ncclInProgress)
        stop_locked(fmt::format("NCCL: a collective failed on rank {}: {} ({})", rank(),
                                ::ncclGetErrorString(state), ::ncclGetLastError(comm_)));
      else if (::cudaEventQuery(newest_) == cudaErrorNotReady &&
               seconds_since(under_way_since_) > deadline_seconds_)
        stop_locked(
            fmt::format("NCCL: no answer from the other ranks within {} s", deadline_seconds_));
    }
  }
  NcclComm& world() {
    NcclComm* comm = this;
    while (comm->parent_ != nullptr) comm = comm->parent_;
    return *comm;
  }
  // Stops the world and all its parts.
  void stop_all(const std::string& reason) {
    NcclComm& whole = world();
    whole.stop(reason);
    const std::lock_guard lock(whole.parts_mutex_);
    for (NcclComm* part : whole.parts_) part->stop(reason);
  }
  void stop(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) stop_locked(reason);
  }
  // Ends NCCL's kernels, so that streams go on and check_failure() throws the reason.
  void stop_locked(const std::string& reason) {
    failure_ = reason;
    if (comm_) ::ncclCommAbort(comm_);
    comm_ = nullptr;
  }
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  NcclComm* parent_ = nullptr;
  std::unique_ptr<Communicator> own_host_;  // of a part
  Communicator& host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;  // of collectives that the host waits for
  ncclComm_t comm_ = nullptr;
  cudaEvent_t newest_ = nullptr;  // after the newest collective
  Clock::time_point under_way_since_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  bool closing_ = false;
  std::atomic<double> deadline_seconds_{600};
  std::atomic<int64_t> wire_bytes_{0};
  std::mutex parts_mutex_;
  std::vector<NcclComm*> parts_;  // of the world: all that exist
  std::thread watcher_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device) {
  return std::make_unique<NcclComm>(host, device);
}

}  // namespace dstrain
