// StagedComm: a communicator of device memory for ranks whose devices cannot reach each other: GPUs that
// several ranks share, the emulated device. Tensors travel through host memory that the peers read
// directly, a window at a time: while one window travels between the ranks, the next one comes from the
// device. Sums are the host communicator's, bit for bit.
// Invariant: an operation is complete when the call that starts it returns. The caller must have waited
// for whatever writes its source.
#pragma once

#include <array>

#include "runtime/comm/communicator.h"
#include "runtime/comm/operation.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

class StagedComm final : public Communicator {
 public:
  // Collective over `host`. `host` and `device` outlive this object.
  StagedComm(Communicator& host, Device& device);

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  Memory allocate(int64_t bytes, const std::string& what) override {
    return device_.allocate(bytes, what);
  }
  Work all_reduce(Tensor inout) override { return run(Collective::all_reduce, inout, inout, 0); }
  Work reduce_scatter(Tensor in, Tensor out) override {
    return run(Collective::reduce_scatter, in, out, 0);
  }
  Work all_gather(Tensor in, Tensor out) override {
    return run(Collective::all_gather, in, out, 0);
  }
  Work broadcast(Tensor inout, int root) override {
    return run(Collective::broadcast, inout, inout, root);
  }
  void barrier() override { host_.barrier(); }
  void wait_for(int64_t) override {}
  bool poll_for(int64_t) override { return true; }
  void gather_values(std::span<const double> mine, std::span<double> all) override {
    host_.gather_values(mine, all);
  }
  void abort(const std::string& reason) override { host_.abort(reason); }
  int64_t wire_bytes() const override { return wire_bytes_; }
  void set_deadline(double seconds) override { host_.set_deadline(seconds); }
  void set_threads(int threads) override { host_.set_threads(threads); }
  void finish() override { host_.finish(); }

 private:
  // Elements [begin, begin + count) of the whole, or of each slice.
  struct Window {
    int64_t begin = 0, count = 0;
    std::byte* staging = nullptr;  // where its slices lie on the host, one after another
  };
  // Slices [first, last) of a window.
  struct Slices {
    int64_t first = 0, last = 0;
  };

  Work run(Collective kind, const Tensor& in, const Tensor& out, int root);
  // Gives the stream copies of `slices` of a window from the device, or back. `tensor` consists of these
  // slices, of `n` elements each.
  void fetch(const Tensor& tensor, int64_t n, Slices slices, const Window& window);
  void deliver(const Tensor& tensor, int64_t n, Slices slices, const Window& window);
  // Carries out the operation on the host; `whole`: all slices of a window.
  void exchange(Collective kind, const Tensor& whole, int root);

  Communicator& host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Memory staging_;  // for two windows
  std::shared_ptr<void> pinned_;
  std::array<std::unique_ptr<Event>, 2> fetched_;
  int64_t wire_bytes_ = 0;
};

}  // namespace dstrain
