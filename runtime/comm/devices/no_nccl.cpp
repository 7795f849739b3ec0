// make_nccl_communicator() of a build without NCCL.
#include "runtime/comm/devices/nccl_comm.h"
#include "runtime/core/error.h"

namespace dstrain {

bool has_nccl() {
  return false;
}

// NOLINTBEGIN(performance-unnecessary-value-param): builds with NCCL keep the pointer
std::unique_ptr<Communicator> make_nccl_communicator(Communicator&, Device&,
                                                     std::shared_ptr<const RankSum>) {
  throw InternalError("this build has no NCCL");
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace dstrain
