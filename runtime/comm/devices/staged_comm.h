// StagedComm: a communicator of device memory for ranks whose devices do not reach each other: GPUs that
// several ranks share, the emulated device. Tensors pass the host a window at a time, through memory
// that the peers read directly and the device's copies reach: while one window travels between ranks,
// the next one comes from the device. Sums are the host communicator's, bit for bit.
// Invariant: every operation is complete when the call that starts it returns; the caller has waited
// for whatever writes its source.
#pragma once

#include <array>
#include <functional>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

class StagedComm final : public Communicator {
 public:
  // Collective over `host`; both outlive this.
  StagedComm(Communicator& host, Device& device);

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  Memory allocate(int64_t bytes, const std::string& what) override {
    return device_.allocate(bytes, what);
  }
  Work all_reduce(Tensor inout) override;
  Work reduce_scatter(Tensor in, Tensor out) override;
  Work all_gather(Tensor in, Tensor out) override;
  Work broadcast(Tensor inout, int root) override;
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
    std::byte* here = nullptr;  // the half of the staging memory that it uses
  };
  // Cuts `elements` into windows of at most `most` and takes each through the three steps; `fetch` and
  // `deliver` give copies to the stream, `exchange` runs in between on the host.
  void pass(int64_t elements, int64_t most, const std::function<void(const Window&)>& fetch,
            const std::function<void(const Window&)>& exchange,
            const std::function<void(const Window&)>& deliver);
  int64_t window_elements(DType dtype, int64_t slices) const;

  Communicator& host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Memory staging_;
  std::shared_ptr<void> pinned_;
  std::array<std::unique_ptr<Event>, 2> fetched_;
  int64_t wire_bytes_ = 0;
};

}  // namespace dstrain
