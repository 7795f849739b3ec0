// connect_nccl() of a build without NCCL.
#include "runtime/comm/devices/nccl_transport.h"
#include "runtime/core/error.h"

namespace dstrain {

bool has_nccl() {
  return false;
}

std::unique_ptr<StreamTransport> connect_nccl(Communicator&, Device&, const std::atomic<double>&) {
  throw InternalError("this build has no NCCL");
}

}  // namespace dstrain
