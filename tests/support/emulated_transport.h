// EmulatedTransport: a transport of the emulated device that behaves like NCCL. Operations run in streams, in the order
// of the calls. Sums go around a ring and are rounded to the tensor's dtype at every hop. There is no deadline: what
// waits for a peer waits until stop(), whether the peer is late, has stopped the group, or is gone. stop() returns when
// the graphs that have captured operations are destroyed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/devices/stream_transport.h"
#include "runtime/comm/sums.h"
#include "runtime/core/devices/emulated_capture.h"
#include "runtime/core/error.h"

namespace dstrain {

class EmulatedTransport final : public StreamTransport {
 public:
  // Collective over `host`. `announced` counts the pieces of memory that are announced to the transport.
  EmulatedTransport(Communicator& host, Device& device, std::shared_ptr<std::atomic<int>> announced)
      : host_(host.split(all_ranks(host))),
        device_(device),
        announced_(std::move(announced)),
        last_(device.make_event()) {}

  void all_reduce(Tensor inout, Stream& stream) override {
    give(stream, [this, inout] { ring_sums(inout, 0, size(), inout.as<std::byte>()); });
  }
  void reduce_scatter(Tensor in, Tensor out, Stream& stream) override {
    give(stream, [this, in, out] { ring_sums(in, rank(), rank() + 1, out.as<std::byte>()); });
  }
  void all_gather(Tensor in, Tensor out, Stream& stream) override {
    give(stream, [this, in, out] { finish(host_->all_gather(in, out)); });
  }
  void broadcast(Tensor inout, int root, Stream& stream) override {
    give(stream, [this, inout, root] { finish(host_->broadcast(inout, root)); });
  }
  void exchange(std::span<const Tensor> to, std::span<const Tensor> from, Stream& stream) override {
    give(stream, [this, to = std::vector<Tensor>(to.begin(), to.end()),
                  from = std::vector<Tensor>(from.begin(), from.end())] { messages(to, from); });
  }
  Memory allocate(int64_t bytes, const std::string& what) override {
    return device_.allocate(bytes, what);
  }
  std::shared_ptr<void> register_memory(std::byte*, int64_t) override {
    ++*announced_;
    return {announced_.get(), [count = announced_](void*) { --*count; }};
  }
  std::string failure() override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void stop() override {
    stopped_ = true;
    while (captured_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  struct Stopped {};

  static std::vector<int> all_ranks(const Communicator& host) {
    std::vector<int> ranks(static_cast<size_t>(host.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }

  // As NCCL does, lets an operation wait for the one before, whatever its stream, but not across the ends of a
  // capture.
  void give(Stream& stream, std::function<void()> operation) {
    if (stopped_) fail_run("the transport was stopped");
    auto& thread = *static_cast<EmulatedStream*>(stream.native());
    std::shared_ptr<EmulatedCapture> capture = thread.capture().capture;
    if (capture == last_capture_) stream.wait(*last_);
    thread.submit([this, operation = std::move(operation),
                   held = capture ? captured_ : std::shared_ptr<int>()] {
      try {
        operation();
      } catch (const Stopped&) {
      } catch (const PeerError&) {
        wait_for_stop();
      } catch (const RunError& error) {
        note_failure(error.what());
      }
    });
    last_->record(stream);
    last_capture_ = std::move(capture);
  }
  void note_failure(const std::string& failure) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
    }
    wait_for_stop();
  }
  // As a kernel of NCCL, an operation that failed does not end before it is stopped.
  void wait_for_stop() const {
    while (!stopped_) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void finish(Work work) {
    while (!work.poll()) {
      if (stopped_) throw Stopped{};
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // Writes slices [first, last) of the sum over all ranks to `to`. Slice s is added from rank s + 1 on, around the ring
  // to rank s.
  void ring_sums(const Tensor& mine, int first, int last, std::byte* to) {
    const int64_t bytes = mine.bytes(), width = size_of(mine.dtype);
    std::vector<std::byte> all(static_cast<size_t>(bytes * size()));
    finish(host_->all_gather(flat(mine.data, bytes), flat(all.data(), bytes * size())));
    const int64_t slice = (mine.elements() + size() - 1) / size();
    for (int s = first; s < last; ++s) {
      const int64_t begin = std::min(s * slice, mine.elements());
      const int64_t n = std::min(slice, mine.elements() - begin);
      if (n == 0) continue;
      const auto source = [&](int hop) {
        return all.data() + (s + 1 + hop) % size() * bytes + begin * width;
      };
      std::vector<std::byte> sum(source(0), source(0) + n * width);
      for (int hop = 1; hop < size(); ++hop) {
        const std::byte* const sources[] = {sum.data(), source(hop)};
        std::byte* const destination = sum.data();
        sum_in_order(mine.dtype, sources, {&destination, 1}, n);
      }
      std::memcpy(to + (s - first) * slice * width, sum.data(), sum.size());
    }
  }
  static Tensor flat(void* data, int64_t bytes) { return {data, {bytes}, DType::u8}; }

  void messages(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
    int64_t width = 0;  // of the largest message of any rank
    for (const Tensor& t : to) width = std::max(width, t ? t.bytes() : 0);
    std::vector<int32_t> widths(static_cast<size_t>(size()));
    auto own = static_cast<int32_t>(width);
    finish(host_->all_gather({&own, {1}, DType::i32}, {widths.data(), {size()}, DType::i32}));
    width = *std::max_element(widths.begin(), widths.end());
    std::vector<std::byte> out(static_cast<size_t>(width * size())), in(out.size());
    for (size_t r = 0; r < to.size(); ++r)
      if (to[r])
        std::memcpy(out.data() + static_cast<int64_t>(r) * width, to[r].data,
                    static_cast<size_t>(to[r].bytes()));
    finish(host_->all_to_all(flat(out.data(), width * size()), flat(in.data(), width * size())));
    for (size_t r = 0; r < from.size(); ++r)
      if (from[r])
        std::memcpy(from[r].data, in.data() + static_cast<int64_t>(r) * width,
                    static_cast<size_t>(from[r].bytes()));
  }

  std::unique_ptr<Communicator> host_;
  Device& device_;
  std::shared_ptr<std::atomic<int>> announced_;
  std::unique_ptr<Event> last_;  // after the newest operation
  std::shared_ptr<EmulatedCapture> last_capture_;
  std::shared_ptr<int> captured_ = std::make_shared<int>(0);  // held by each captured operation
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::string failure_;
};

// A ConnectTransport.
inline std::unique_ptr<StreamTransport> connect_emulated(Communicator& host, Device& device,
                                                         const std::atomic<double>&) {
  return std::make_unique<EmulatedTransport>(host, device, std::make_shared<std::atomic<int>>(0));
}

}  // namespace dstrain
