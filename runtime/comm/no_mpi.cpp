// join_by_mpi() of a build without MPI.
#include "runtime/comm/world.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"

namespace dstrain {

bool has_mpi() {
  return false;
}

std::unique_ptr<Communicator> join_by_mpi(const TransportChoice&, const CommOptions&) {
  fail_user(
      "this process is one of {} ranks of mpirun or srun, and this build of dstrain has no MPI: "
      "let dstrain start its ranks itself (--num_gpus {}), or build it with -DDSTRAIN_MPI=ON where "
      "Open MPI is",
      world_size_from_environment(), world_size_from_environment());
}

}  // namespace dstrain
