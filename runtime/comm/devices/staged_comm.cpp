#include "runtime/comm/devices/staged_comm.h"

#include <algorithm>

#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kHalfBytes = int64_t{4} << 20;

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
      fetched_{device.make_event(), device.make_event()} {}

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
                  window.staging + s * window.count * element, window.count * element);
}

void StagedComm::exchange(Collective kind, const Tensor& whole, int root) {
  const int64_t n = whole.elements() / (is_sliced(kind) ? size() : 1);
  const Tensor mine{whole.as<std::byte>() + rank() * n * size_of(whole.dtype), {n}, whole.dtype};
  if (kind == Collective::all_reduce) host_.all_reduce(whole).wait();
  if (kind == Collective::reduce_scatter) host_.reduce_scatter(whole, mine).wait();
  if (kind == Collective::all_gather) host_.all_gather(mine, whole).wait();
  if (kind == Collective::broadcast) host_.broadcast(whole, root).wait();
}

Work StagedComm::run(Collective kind, const Tensor& in, const Tensor& out, int root) {
  const Tensor& whole = kind == Collective::all_gather ? out : in;
  const int64_t slices = is_sliced(kind) ? size() : 1;
  const int64_t n = whole.elements() / slices;
  check(in.elements() == n * source_slices(kind, size()) &&
            out.elements() == n * result_slices(kind, size()),
        "{} of {} elements to {} on {} ranks", name_of(kind), in.elements(), out.elements(),
        size());
  const Slices all{0, slices}, own{rank(), rank() + 1};
  Slices fetched = kind == Collective::all_gather ? own : all;
  Slices delivered = kind == Collective::reduce_scatter ? own : all;
  if (kind == Collective::broadcast) (rank() == root ? delivered : fetched) = {};

  const int64_t most =
      std::max(kHalfBytes / size_of(in.dtype) / slices / kCacheLine * kCacheLine, int64_t{1});
  const int64_t windows = (n + most - 1) / most;
  const auto window = [&](int64_t i) {
    return Window{i * most, std::min(most, n - i * most), staging_.data() + i % 2 * kHalfBytes};
  };
  const auto begin = [&](int64_t i) {
    fetch(in, n, fetched, window(i));
    fetched_[static_cast<size_t>(i % 2)]->record(*stream_);
  };
  {
    const StreamGuard guard(*stream_);
    if (windows > 0) begin(0);
    for (int64_t i = 0; i < windows; ++i) {
      // The stream has delivered window i - 1 before it fetches into the same half.
      if (i + 1 < windows) begin(i + 1);
      fetched_[static_cast<size_t>(i % 2)]->synchronize();
      const Window now = window(i);
      exchange(kind, {now.staging, {now.count * slices}, in.dtype}, root);
      deliver(out, n, delivered, now);
    }
    stream_->synchronize();
  }
  wire_bytes_ += ring_bytes(kind, whole.bytes(), size());
  return {};
}

}  // namespace dstrain
