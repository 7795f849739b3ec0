#include "runtime/comm/devices/transport_end.h"

#include <exception>
#include <thread>
#include <utility>

namespace dstrain {

void TransportEnd::begin(std::shared_ptr<StreamTransport> transport, Device& device) {
  std::promise<void> stopped;
  stopped_ = stopped.get_future();
  std::thread([transport = std::move(transport), stopped = std::move(stopped), &device]() mutable {
    try {
      device.attach_thread();
      transport->stop();
    } catch (const std::exception&) {  // the failure that led to the stop is the one to report
    }
    transport.reset();
    stopped.set_value();
  }).detach();
}

bool TransportEnd::wait(std::chrono::milliseconds longest) {
  return !stopped_.valid() || stopped_.wait_for(longest) == std::future_status::ready;
}

}  // namespace dstrain
