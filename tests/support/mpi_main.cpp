// A Catch2 main for programs that mpirun starts: MPI lives as long as the program, so that test cases
// may make one communicator after the other.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <string>

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Catch::Session session;
  const int usage = session.applyCommandLine(argc, argv);
  if (usage != 0) return usage;
  const int failures = session.run();
  // After a failure the ranks no longer agree on what comes next.
  if (failures != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
