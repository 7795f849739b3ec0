// In place of the ranks of MPI, in a build without it.
#include "runtime/comm/world.h"
#include "runtime/core/error.h"

namespace dstrain {

std::unique_ptr<Communicator> join_world(const CommOptions&) {
  fail_user(
      "this process is one of {} ranks, and this build of dstrain has no MPI, so it can be one "
      "rank only: "
      "start it by itself (--num_gpus 1), or build it with -DDSTRAIN_MPI=ON where Open MPI is",
      world_size_from_environment());
}

}  // namespace dstrain
