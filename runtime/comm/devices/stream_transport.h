// StreamTransport: the interface of a library that carries tensors between devices in streams, such as NCCL. StreamComm
// counts and watches its operations. They run in the order of the calls, which is the same on all ranks, whatever their
// streams.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

class StreamTransport {
 public:
  // The caller must have waited for the operations, or stopped them, and destroyed all graphs with captured ones.
  virtual ~StreamTransport() = default;

  // Each gives an operation to `stream` and returns; operands are those of the Communicator's. In which order the sums
  // add, and how often they round, is the transport's affair. Throws RunError if the operation is refused, or not
  // accepted within the deadline, or if the transport is stopped.
  virtual void all_reduce(Tensor inout, Stream& stream) = 0;
  virtual void reduce_scatter(Tensor in, Tensor out, Stream& stream) = 0;
  virtual void all_gather(Tensor in, Tensor out, Stream& stream) = 0;
  virtual void broadcast(Tensor inout, int root, Stream& stream) = 0;
  // Messages between all ranks, as one operation: `to[r]` goes to rank r, and what r sends arrives in `from[r]`. A null
  // tensor is no message. The two sides of a message have equal sizes and dtypes.
  virtual void exchange(std::span<const Tensor> to, std::span<const Tensor> from,
                        Stream& stream) = 0;

  // Returns zero-filled memory of the device, from where operations are fastest.
  virtual Memory allocate(int64_t bytes, const std::string& what) = 0;
  // Announces memory from allocate() of any transport of this process, so that operations reach it without a copy, as
  // long as the result lives. Returns null if that has no effect.
  virtual std::shared_ptr<void> register_memory(std::byte* data, int64_t bytes) = 0;

  // Returns what has failed; empty: nothing.
  virtual std::string failure() = 0;
  // Ends what is under way, so that streams go on, with tensors that are not complete; later operations throw RunError.
  // Then waits until all graphs with captured operations are destroyed. May be called from any thread, once.
  virtual void stop() = 0;
};

// Collective over `host`. Connects the ranks of `host`; each has a device. Throws RunError if it cannot within
// `deadline_seconds`, which every operation keeps too and which may change. All three outlive the result.
using ConnectTransport = std::function<std::unique_ptr<StreamTransport>(
    Communicator& host, Device& device, const std::atomic<double>& deadline_seconds)>;

}  // namespace dstrain
