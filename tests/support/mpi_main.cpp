// A main for test programs that mpirun starts: MPI lives as long as the program, so that test cases
// may make one communicator after the other.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "runtime/comm/mpi/mpi_settings.h"
#include "tests/support/catch.h"

int main(int argc, char** argv) {
  dstrain::prepare_mpi_settings();
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const int status = dstrain::run_tests(argc, argv);
  const bool skipped = status == dstrain::kAllSkipped;
  // After a failure the ranks no longer agree on what comes next.
  if (status != 0 && !skipped) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return status;
}
