// TransportEnd: stops a transport in a thread of its own. NCCL's end of a communicator waits until the graphs that have
// captured its operations are destroyed, and may wait for the kernels of another communicator. So nobody who still has
// graphs, or another transport to stop, may wait for it.
#pragma once

#include <chrono>
#include <future>
#include <memory>

#include "runtime/comm/devices/stream_transport.h"
#include "runtime/core/devices/device.h"

namespace dstrain {

class TransportEnd {
 public:
  // Begins to stop `transport`, which is kept until it has stopped. `device` must outlive wait().
  void begin(std::shared_ptr<StreamTransport> transport, Device& device);
  // Waits at most `longest` for the transport; returns whether it has stopped, which it has if begin() was not called.
  // A transport that has not goes on to stop, until the process ends.
  bool wait(std::chrono::milliseconds longest);

 private:
  std::future<void> stopped_;
};

}  // namespace dstrain
