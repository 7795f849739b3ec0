#include "runtime/comm/devices/staged_comm.h"

#include <algorithm>

#include "runtime/comm/operation.h"
#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kHalfBytes = int64_t{4} << 20;

// Whatever happens, no copy is left behind that uses the caller's memory.
class Settled {
 public:
  explicit Settled(Stream& stream) : stream_(stream) {}
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;
  ~Settled() {
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

int64_t StagedComm::window_elements(DType dtype, int64_t slices) const {
  return std::max(kHalfBytes / size_of(dtype) / slices / kCacheLine * kCacheLine, int64_t{1});
}

void StagedComm::pass(int64_t elements, int64_t most,
                      const std::function<void(const Window&)>& fetch,
                      const std::function<void(const Window&)>& exchange,
                      const std::function<void(const Window&)>& deliver) {
  const auto window = [&](int64_t i) {
    return Window{i * most, std::min(most, elements - i * most),
                  staging_.data() + i % 2 * kHalfBytes};
  };
  const auto begin = [&](int64_t i) {
    fetch(window(i));
    fetched_[static_cast<size_t>(i % 2)]->record(*stream_);
  };
  const int64_t windows = (elements + most - 1) / most;
  const Settled settled(*stream_);
  if (windows > 0) begin(0);
  for (int64_t i = 0; i < windows; ++i) {
    // Its half of the memory is free in the stream's order: window i - 1 was given to it before.
    if (i + 1 < windows) begin(i + 1);
    fetched_[static_cast<size_t>(i % 2)]->synchronize();
    exchange(window(i));
    deliver(window(i));
  }
  stream_->synchronize();
}

Work StagedComm::all_reduce(Tensor inout) {
  const int64_t element = size_of(inout.dtype);
  const auto there = [&](const Window& w) { return inout.as<std::byte>() + w.begin * element; };
  pass(
      inout.elements(), window_elements(inout.dtype, 1),
      [&](const Window& w) { stream_->copy(w.here, there(w), w.count * element); },
      [&](const Window& w) {
        host_.all_reduce({w.here, {w.count}, inout.dtype}).wait();
      },
      [&](const Window& w) { stream_->copy(there(w), w.here, w.count * element); });
  wire_bytes_ += ring_bytes(Collective::all_reduce, inout.bytes(), size());
  return {};
}

Work StagedComm::reduce_scatter(Tensor in, Tensor out) {
  const int64_t element = size_of(in.dtype), n = out.elements();
  check(in.elements() == n * size(), "reduce_scatter of {} elements to {} of {} ranks",
        in.elements(), n, size());
  const int64_t mine = rank();
  pass(
      n, window_elements(in.dtype, size()),
      [&](const Window& w) {
        for (int64_t r = 0; r < size(); ++r)
          stream_->copy(w.here + r * w.count * element,
                        in.as<std::byte>() + (r * n + w.begin) * element, w.count * element);
      },
      [&](const Window& w) {
        host_
            .reduce_scatter({w.here, {w.count * size()}, in.dtype},
                            {w.here + mine * w.count * element, {w.count}, in.dtype})
            .wait();
      },
      [&](const Window& w) {
        stream_->copy(out.as<std::byte>() + w.begin * element, w.here + mine * w.count * element,
                      w.count * element);
      });
  wire_bytes_ += ring_bytes(Collective::reduce_scatter, in.bytes(), size());
  return {};
}

Work StagedComm::all_gather(Tensor in, Tensor out) {
  const int64_t element = size_of(in.dtype), n = in.elements();
  check(out.elements() == n * size(), "all_gather of {} elements of each of {} ranks to {}", n,
        size(), out.elements());
  const int64_t mine = rank();
  pass(
      n, window_elements(in.dtype, size()),
      [&](const Window& w) {
        stream_->copy(w.here + mine * w.count * element, in.as<std::byte>() + w.begin * element,
                      w.count * element);
      },
      [&](const Window& w) {
        host_
            .all_gather({w.here + mine * w.count * element, {w.count}, in.dtype},
                        {w.here, {w.count * size()}, in.dtype})
            .wait();
      },
      [&](const Window& w) {
        for (int64_t r = 0; r < size(); ++r)
          stream_->copy(out.as<std::byte>() + (r * n + w.begin) * element,
                        w.here + r * w.count * element, w.count * element);
      });
  wire_bytes_ += ring_bytes(Collective::all_gather, out.bytes(), size());
  return {};
}

Work StagedComm::broadcast(Tensor inout, int root) {
  const int64_t element = size_of(inout.dtype);
  const auto there = [&](const Window& w) { return inout.as<std::byte>() + w.begin * element; };
  pass(
      inout.elements(), window_elements(inout.dtype, 1),
      [&](const Window& w) {
        if (rank() == root) stream_->copy(w.here, there(w), w.count * element);
      },
      [&](const Window& w) {
        host_.broadcast({w.here, {w.count}, inout.dtype}, root).wait();
      },
      [&](const Window& w) {
        if (rank() != root) stream_->copy(there(w), w.here, w.count * element);
      });
  wire_bytes_ += ring_bytes(Collective::broadcast, inout.bytes(), size());
  return {};
}

}  // namespace dstrain
