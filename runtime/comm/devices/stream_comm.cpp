#include "runtime/comm/devices/stream_comm.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{200};
// How long a failed communicator waits for its transport. The process then ends without it.
constexpr std::chrono::seconds kLongestEnd{5};

}  // namespace

StreamComm::StreamComm(Communicator& host, Device& device, ConnectTransport connect,
                       std::shared_ptr<const RankSum> sum)
    : host_(host),
      device_(device),
      connect_(std::move(connect)),
      sum_(std::move(sum)),
      stream_(device.make_stream(StreamPriority::high)),
      newest_(device.make_event()) {
  connect_ranks();
}

StreamComm::StreamComm(std::unique_ptr<Communicator> host, StreamComm& parent)
    : parent_(&parent),
      own_host_(std::move(host)),
      host_(*own_host_),
      device_(parent.device_),
      connect_(parent.connect_),
      sum_(parent.sum_),
      stream_(device_.make_stream(StreamPriority::high)),
      newest_(device_.make_event()),
      deadline_seconds_(parent.deadline_seconds_.load()) {
  connect_ranks();
  StreamComm& whole = world();
  const std::lock_guard lock(whole.parts_mutex_);
  whole.parts_.push_back(this);
}

void StreamComm::connect_ranks() {
  transport_ = connect_(host_, device_, deadline_seconds_);
  if (sum_ && size() > 1) sums_.emplace(*transport_, device_, rank(), size(), sum_);
  to_.resize(static_cast<size_t>(size()));
  from_.resize(static_cast<size_t>(size()));
  watcher_ = std::thread([this] { watch(); });
  try {
    if (size() == 2) connect_messages();
  } catch (...) {
    end_watch();
    throw;
  }
}

// NCCL connects two GPUs at their first message, and the host waits for that: later, when a rank posts what it receives
// before it sends, neither would be there for the other.
void StreamComm::connect_messages() {
  const Memory memory = device_.allocate(sizeof(int32_t), "the first message");
  const Tensor word{memory.data(), {1}, DType::i32};
  for (const int sender : {0, 1})
    exchange_with_peer(rank() == sender ? word : Tensor{}, rank() == sender ? Tensor{} : word, 0,
                       *stream_);
  stream_->synchronize();
  check_failure();
}

StreamComm::~StreamComm() {
  if (parent_ != nullptr) {
    StreamComm& whole = world();
    const std::lock_guard lock(whole.parts_mutex_);
    std::erase(whole.parts_, this);
  }
  end_watch();
  end_.wait(kLongestEnd);
}

void StreamComm::end_watch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

std::unique_ptr<Communicator> StreamComm::split(std::span<const int> ranks) {
  check_failure();
  return std::unique_ptr<StreamComm>(new StreamComm(host_.split(ranks), *this));
}

Memory StreamComm::allocate(int64_t bytes, const std::string& what) {
  if (parent_ != nullptr) return device_.allocate(bytes, what);
  // What was announced ends before the memory does.
  struct Announced {
    Memory memory;
    std::vector<std::shared_ptr<void>> to;
  };
  const auto announced = std::make_shared<Announced>();
  announced->memory = transport_->allocate(bytes, what);
  std::byte* const data = announced->memory.data();
  if (data == nullptr) return {};
  const auto announce = [&](StreamComm& comm) {
    const std::lock_guard lock(comm.mutex_);
    if (comm.failure_.empty())
      announced->to.push_back(comm.transport_->register_memory(data, bytes));
  };
  announce(*this);
  const std::lock_guard lock(parts_mutex_);
  for (StreamComm* part : parts_) announce(*part);
  return Memory::adopt({announced, data}, bytes);
}

template <class Call>
void StreamComm::start(Collective kind, int64_t whole_bytes, Stream& stream, Call&& call) {
  check_failure();
  const int64_t bytes = ring_bytes(kind, whole_bytes, size());
  // The transport may take as long as the deadline, in which another thread may stop it.
  try {
    call();
  } catch (const RunError& error) {
    stop(error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) fail_run("{}", failure_);
    if (stream.capturing()) {
      captured_bytes_ += bytes;
      return;
    }
    watch_locked(stream);
  }
  count(bytes);
}

void StreamComm::count(int64_t bytes) {
  for (StreamComm* comm = this; comm != nullptr; comm = comm->parent_) comm->wire_bytes_ += bytes;
}

void StreamComm::watch_locked(Stream& stream) {
  newest_->record(stream);
  under_way_since_ = Clock::now();
}

int64_t StreamComm::take_captured_bytes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(captured_bytes_, 0);
}

void StreamComm::replayed(int64_t bytes, Stream& stream) {
  check_failure();
  {
    const std::lock_guard lock(mutex_);
    watch_locked(stream);
  }
  count(bytes);
}

void StreamComm::all_reduce(Tensor inout, Stream& stream) {
  start(Collective::all_reduce, inout.bytes(), stream, [&] {
    if (sums_ && RankOrderSums::adds(inout.dtype)) return sums_->all_reduce(inout, stream);
    transport_->all_reduce(inout, stream);
  });
}

void StreamComm::reduce_scatter(Tensor in, Tensor out, Stream& stream) {
  start(Collective::reduce_scatter, in.bytes(), stream, [&] {
    if (sums_ && RankOrderSums::adds(in.dtype)) return sums_->reduce_scatter(in, out, stream);
    transport_->reduce_scatter(in, out, stream);
  });
}

void StreamComm::all_gather(Tensor in, Tensor out, Stream& stream) {
  start(Collective::all_gather, out.bytes(), stream,
        [&] { transport_->all_gather(in, out, stream); });
}

void StreamComm::all_to_all(Tensor in, Tensor out, Stream& stream) {
  check(in.dtype == out.dtype && in.elements() == out.elements() && in.elements() % size() == 0,
        "all_to_all of {} elements to {} on {} ranks", in.elements(), out.elements(), size());
  start(Collective::all_to_all, in.bytes(), stream, [&] {
    const int64_t n = in.elements() / size(), bytes = n * size_of(in.dtype);
    for (int64_t r = 0; r < size(); ++r) {
      to_[static_cast<size_t>(r)] = {in.as<std::byte>() + r * bytes, {n}, in.dtype};
      from_[static_cast<size_t>(r)] = {out.as<std::byte>() + r * bytes, {n}, out.dtype};
    }
    transport_->exchange(to_, from_, stream);
  });
}

void StreamComm::exchange_with_peer(const Tensor& to, const Tensor& from, int64_t bytes,
                                    Stream& stream) {
  check(size() == 2, "a message in a communicator of {} ranks", size());
  start(Collective::message, bytes, stream, [&] {
    const auto peer = static_cast<size_t>(1 - rank());
    to_ = {Tensor{}, Tensor{}};
    from_ = {Tensor{}, Tensor{}};
    to_[peer] = to;
    from_[peer] = from;
    transport_->exchange(to_, from_, stream);
  });
}

void StreamComm::send(Tensor in, Stream& stream) {
  exchange_with_peer(in, {}, in.bytes(), stream);
}

// The sender counts the bytes.
void StreamComm::recv(Tensor out, Stream& stream) {
  exchange_with_peer({}, out, 0, stream);
}

Work StreamComm::complete() {
  stream_->synchronize();
  check_failure();
  return {this, 0};
}

Work StreamComm::all_reduce(Tensor inout) {
  all_reduce(inout, *stream_);
  return complete();
}

Work StreamComm::reduce_scatter(Tensor in, Tensor out) {
  reduce_scatter(in, out, *stream_);
  return complete();
}

Work StreamComm::all_gather(Tensor in, Tensor out) {
  all_gather(in, out, *stream_);
  return complete();
}

void StreamComm::exchange_rows(Tensor, Tensor, RowCounts, Stream&) {
  throw InternalError("rows are exchanged between processors alone");
}

Work StreamComm::exchange_rows(Tensor in, Tensor out, RowCounts counts) {
  exchange_rows(in, out, counts, *stream_);
  return complete();
}

Work StreamComm::all_to_all(Tensor in, Tensor out) {
  all_to_all(in, out, *stream_);
  return complete();
}

Work StreamComm::broadcast(Tensor inout, int root) {
  start(Collective::broadcast, inout.bytes(), *stream_,
        [&] { transport_->broadcast(inout, root, *stream_); });
  return complete();
}

Work StreamComm::send(Tensor in) {
  send(in, *stream_);
  return complete();
}

Work StreamComm::recv(Tensor out) {
  recv(out, *stream_);
  return complete();
}

bool StreamComm::poll_for(int64_t) {
  check_failure();
  return true;
}

void StreamComm::gather_values(std::span<const double> mine, std::span<double> all) {
  check_failure();
  host_.gather_values(mine, all);
}

void StreamComm::abort(const std::string& reason) {
  stop_all(reason);
  host_.abort(reason);
}

void StreamComm::set_deadline(double seconds) {
  StreamComm& whole = world();
  whole.deadline_seconds_ = seconds;
  const std::lock_guard lock(whole.parts_mutex_);
  for (StreamComm* part : whole.parts_) part->deadline_seconds_ = seconds;
  host_.set_deadline(seconds);
}

void StreamComm::check_failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail_run("{}", failure_);
}

void StreamComm::watch() {
  device_.attach_thread();
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, kWatchInterval);
    if (!failure_.empty()) continue;
    const double deadline = deadline_seconds_;
    if (const std::string error = transport_->failure(); !error.empty())
      stop_locked(error);
    else if (const std::string reason = host_.abort_reason(); !reason.empty())
      stop_locked(reason);
    else if (!newest_->reached() &&
             std::chrono::duration<double>(Clock::now() - under_way_since_).count() > deadline)
      stop_locked(fmt::format("a collective on rank {}: no answer from the other ranks within {} s",
                              rank(), deadline));
  }
}

StreamComm& StreamComm::world() {
  StreamComm* comm = this;
  while (comm->parent_ != nullptr) comm = comm->parent_;
  return *comm;
}

void StreamComm::stop_all(const std::string& reason) {
  StreamComm& whole = world();
  whole.stop(reason);
  const std::lock_guard lock(whole.parts_mutex_);
  for (StreamComm* part : whole.parts_) part->stop(reason);
}

void StreamComm::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) stop_locked(reason);
}

void StreamComm::stop_locked(const std::string& reason) {
  failure_ = reason;
  end_.begin(transport_, device_);
}

}  // namespace dstrain
