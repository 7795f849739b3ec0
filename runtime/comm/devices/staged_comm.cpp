#include "runtime/comm/devices/staged_comm.h"

#include <algorithm>
#include <utility>

#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kHalfBytes = int64_t{4} << 20;

// The bytes of a window; an all-to-all needs as many for what arrives.
int64_t window_bytes(Collective kind) {
  return kind == Collective::all_to_all ? kHalfBytes / 2 : kHalfBytes;
}

// Synchronizes a stream at the end of a scope, so that no copy that uses the caller's memory outlives it.
class StreamGuard {
 public:
  explicit StreamGuard(Stream& stream) : stream_(stream) {}
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard() {
    try {
      stream_.synchronize();
    } catch (...) {  // the operation has thrown it already
    }
  }

 private:
  Stream& stream_;
};

}  // namespace

StagedComm::StagedComm(Communicator& host, Device& device)
    : host_(host),
      device_(device),
      stream_(device.make_stream()),
      staging_(host.allocate(2 * kHalfBytes, "tensors on their way between devices")),
      pinned_(device.pin(staging_.data(), staging_.bytes())),
      fetched_{device.make_event(), device.make_event()} {
  queue_.reserve(64);  // so that starting an operation does not allocate
}

StagedComm::StagedComm(std::unique_ptr<Communicator> host, Memory staging, StagedComm& parent)
    : parent_(&parent),
      own_host_(std::move(host)),
      host_(*own_host_),
      device_(parent.device_),
      stream_(device_.make_stream()),
      staging_(std::move(staging)),
      pinned_(device_.pin(staging_.data(), staging_.bytes())),
      fetched_{device_.make_event(), device_.make_event()} {
  queue_.reserve(64);
}

std::unique_ptr<Communicator> StagedComm::split(std::span<const int> ranks) {
  wait_for(started_);
  const std::string what = "tensors on their way between devices";
  // Only the world has memory that the peers read directly.
  Memory staging = parent_ == nullptr ? host_.allocate(2 * kHalfBytes, what)
                                      : Memory::anonymous(2 * kHalfBytes, what);
  return std::unique_ptr<StagedComm>(new StagedComm(host_.split(ranks), std::move(staging), *this));
}

void StagedComm::fetch(const Tensor& tensor, int64_t n, Slices slices, const Window& window) {
  const int64_t element = size_of(tensor.dtype);
  for (int64_t s = slices.first; s < slices.last; ++s)
    stream_->copy(window.staging + s * window.count * element,
                  tensor.as<std::byte>() + ((s - slices.first) * n + window.begin) * element,
                  window.count * element);
}

void StagedComm::deliver(const Tensor& tensor, int64_t n, Slices slices, const Window& window) {
  const int64_t element = size_of(tensor.dtype);
  for (int64_t s = slices.first; s < slices.last; ++s)
    stream_->copy(tensor.as<std::byte>() + ((s - slices.first) * n + window.begin) * element,
                  window.result + s * window.count * element, window.count * element);
}

Work StagedComm::exchange(Collective kind, const Tensor& whole, const Tensor& result, int root) {
  const int64_t n = whole.elements() / (is_sliced(kind) ? size() : 1);
  const Tensor mine{whole.as<std::byte>() + rank() * n * size_of(whole.dtype), {n}, whole.dtype};
  switch (kind) {
    case Collective::all_reduce:
      return host_.all_reduce(whole);
    case Collective::reduce_scatter:
      return host_.reduce_scatter(whole, mine);
    case Collective::all_gather:
      return host_.all_gather(mine, whole);
    case Collective::all_to_all:
      return host_.all_to_all(whole, result);
    case Collective::broadcast:
      return host_.broadcast(whole, root);
    case Collective::message:
      return root == rank() ? host_.send(whole) : host_.recv(whole);
    case Collective::exchange_rows:
    case Collective::barrier:
    case Collective::gather_values:
      break;
  }
  throw InternalError(fmt::format("{} has no tensor", name_of(kind)));
}

Work StagedComm::start(Collective kind, const Tensor& in, const Tensor& out, int root) {
  const Tensor& whole = kind == Collective::all_gather ? out : in;
  Transfer t{.kind = kind, .in = in, .out = out, .root = root};
  t.slices = is_sliced(kind) ? size() : 1;
  t.elements = whole.elements() / t.slices;
  check(in.elements() == t.elements * source_slices(kind, size()) &&
            out.elements() == t.elements * result_slices(kind, size()),
        "{} of {} elements to {} on {} ranks", name_of(kind), in.elements(), out.elements(),
        size());
  const Slices all{0, t.slices}, own{rank(), rank() + 1};
  t.fetched = kind == Collective::all_gather ? own : all;
  t.delivered = kind == Collective::reduce_scatter ? own : all;
  if (is_copy(kind)) (rank() == root ? t.delivered : t.fetched) = {};
  t.most = std::max(window_bytes(kind) / size_of(in.dtype) / t.slices / kCacheLine * kCacheLine,
                    int64_t{1});
  t.windows = (t.elements + t.most - 1) / t.most;
  queue_.push_back(t);
  ++started_;
  const bool sends = kind != Collective::message || root == rank();
  const int64_t bytes = sends ? ring_bytes(kind, whole.bytes(), size()) : 0;
  for (StagedComm* comm = this; comm != nullptr; comm = comm->parent_)
    comm->wire_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (queue_.size() == 1) advance();
  return {this, started_};
}

StagedComm::Window StagedComm::window(const Transfer& t, int64_t i) const {
  std::byte* staging = staging_.data() + i % 2 * kHalfBytes;
  return {i * t.most, std::min(t.most, t.elements - i * t.most), staging,
          t.kind == Collective::all_to_all ? staging + window_bytes(t.kind) : staging};
}

void StagedComm::begin_fetch(const Transfer& t, int64_t i) {
  fetch(t.in, t.elements, t.fetched, window(t, i));
  fetched_[static_cast<size_t>(i % 2)]->record(*stream_);
}

bool StagedComm::advance_windows(Transfer& t) {
  for (; t.at < t.windows; ++t.at) {
    const Window now = window(t, t.at);
    if (!t.travels) {
      if (t.at == 0) begin_fetch(t, 0);
      // The stream has delivered window at - 1 before it fetches into the same half.
      if (t.at + 1 < t.windows) begin_fetch(t, t.at + 1);
      fetched_[static_cast<size_t>(t.at % 2)]->synchronize();
      const int64_t n = now.count * t.slices;
      t.work =
          exchange(t.kind, {now.staging, {n}, t.in.dtype}, {now.result, {n}, t.in.dtype}, t.root);
      t.travels = true;
    }
    if (!t.work.poll()) return false;
    deliver(t.out, t.elements, t.delivered, now);
    t.travels = false;
  }
  stream_->synchronize();
  return true;
}

bool StagedComm::advance() {
  try {
    if (!advance_windows(queue_.front())) return false;
  } catch (...) {
    const StreamGuard guard(*stream_);
    throw;
  }
  queue_.erase(queue_.begin());
  ++completed_;
  return true;
}

void StagedComm::wait_for(int64_t sequence) {
  while (completed_ < sequence) {
    if (queue_.front().travels) queue_.front().work.wait();
    advance();
  }
}

bool StagedComm::poll_for(int64_t sequence) {
  while (completed_ < sequence && advance()) {
  }
  return completed_ >= sequence;
}

bool StagedComm::wait_step_for(int64_t sequence, WaitState& state,
                               std::chrono::microseconds longest) {
  if (completed_ >= sequence) return true;
  if (!queue_.front().travels || queue_.front().work.wait_step(state, longest)) {
    state = {};
    advance();
  }
  return completed_ >= sequence;
}

Work StagedComm::exchange_rows(Tensor, Tensor, RowCounts) {
  throw InternalError("rows are exchanged between processors alone");
}

Work StagedComm::send(Tensor in) {
  check(size() == 2, "a message in a communicator of {} ranks", size());
  return start(Collective::message, in, in, rank());
}

Work StagedComm::recv(Tensor out) {
  check(size() == 2, "a message in a communicator of {} ranks", size());
  return start(Collective::message, out, out, 1 - rank());
}

// The host's operations have the same order on every rank: none may come between two windows.
void StagedComm::barrier() {
  wait_for(started_);
  host_.barrier();
}

void StagedComm::gather_values(std::span<const double> mine, std::span<double> all) {
  wait_for(started_);
  host_.gather_values(mine, all);
}

}  // namespace dstrain
