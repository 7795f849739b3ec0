// StagedComm: a communicator of device memory for ranks whose devices cannot reach each other: GPUs that
// several ranks share, the emulated device. Tensors travel through host memory that the peers read
// directly, a window at a time: while one window travels between the ranks, the next one comes from the
// device. Sums are the host communicator's, bit for bit.
// The caller must have waited for whatever writes the source of an operation before it starts it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

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
  std::unique_ptr<Communicator> split(std::span<const int> ranks) override;
  Memory allocate(int64_t bytes, const std::string& what) override {
    return device_.allocate(bytes, what);
  }
  Work all_reduce(Tensor inout) override { return start(Collective::all_reduce, inout, inout, 0); }
  Work reduce_scatter(Tensor in, Tensor out) override {
    return start(Collective::reduce_scatter, in, out, 0);
  }
  Work all_gather(Tensor in, Tensor out) override {
    return start(Collective::all_gather, in, out, 0);
  }
  Work all_to_all(Tensor in, Tensor out) override {
    return start(Collective::all_to_all, in, out, 0);
  }
  // Throws InternalError: counts are in the device's memory.
  Work exchange_rows(Tensor in, Tensor out, RowCounts counts) override;
  Work broadcast(Tensor inout, int root) override {
    return start(Collective::broadcast, inout, inout, root);
  }
  Work send(Tensor in) override;
  Work recv(Tensor out) override;
  void barrier() override;
  void wait_for(int64_t sequence) override;
  bool poll_for(int64_t sequence) override;
  bool wait_step_for(int64_t sequence, WaitState& state,
                     std::chrono::microseconds longest) override;
  void gather_values(std::span<const double> mine, std::span<double> all) override;
  void abort(const std::string& reason) override { host_.abort(reason); }
  int64_t wire_bytes() const override { return wire_bytes_; }
  void set_deadline(double seconds) override { host_.set_deadline(seconds); }
  void set_threads(int threads) override { host_.set_threads(threads); }
  void report_to(RankSlot* slot) override { host_.report_to(slot); }
  void finish() override { host_.finish(); }

 private:
  // Elements [begin, begin + count) of the whole, or of each slice.
  struct Window {
    int64_t begin = 0, count = 0;
    std::byte* staging = nullptr;  // where its slices lie on the host, one after another
    std::byte* result = nullptr;   // where its results do; `staging` but for an all-to-all
  };
  // Slices [first, last) of a window.
  struct Slices {
    int64_t first = 0, last = 0;
  };

  // An operation that has started.
  struct Transfer {
    Collective kind{};
    Tensor in, out;
    int root = 0;
    int64_t slices = 1;    // of the whole
    int64_t elements = 0;  // of a slice
    int64_t most = 1;      // elements of a slice in one window
    int64_t windows = 0;
    Slices fetched{}, delivered{};
    int64_t at = 0;        // the window under way
    bool travels = false;  // it is between the ranks
    Work work{};
  };

  // A part: `host` of its ranks, `staging` from the world's host communicator.
  StagedComm(std::unique_ptr<Communicator> host, Memory staging, StagedComm& parent);
  Work start(Collective kind, const Tensor& in, const Tensor& out, int root);
  Window window(const Transfer& transfer, int64_t i) const;
  void begin_fetch(const Transfer& transfer, int64_t i);
  // Carries the oldest operation on, as far as the ranks are there; returns whether it is complete.
  bool advance();
  bool advance_windows(Transfer& transfer);
  // Gives the stream copies of `slices` of a window from the device, or back. `tensor` consists of these
  // slices, of `n` elements each.
  void fetch(const Tensor& tensor, int64_t n, Slices slices, const Window& window);
  void deliver(const Tensor& tensor, int64_t n, Slices slices, const Window& window);
  // Starts the operation on the host; `whole`: all slices of a window, `result`: those of its result.
  Work exchange(Collective kind, const Tensor& whole, const Tensor& result, int root);

  StagedComm* parent_ = nullptr;
  std::unique_ptr<Communicator> own_host_;  // of a part
  Communicator& host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Memory staging_;  // for two windows
  std::shared_ptr<void> pinned_;
  std::array<std::unique_ptr<Event>, 2> fetched_;
  std::vector<Transfer> queue_;  // in start order
  int64_t started_ = 0;
  int64_t completed_ = 0;
  std::atomic<int64_t> wire_bytes_{0};
};

}  // namespace dstrain
