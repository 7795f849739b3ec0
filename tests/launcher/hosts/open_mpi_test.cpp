#include "launcher/hosts/open_mpi.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("Open MPI is known by what its mpirun says") {
  CHECK(open_mpi_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to\n") == "4.1.4");
  CHECK(open_mpi_version("mpirun (Open MPI) 5.0.0rc1") == "5.0.0rc1");
  CHECK(open_mpi_version("HYDRA build details:\n").empty());
  CHECK(open_mpi_version("").empty());
}

}  // namespace
}  // namespace dstrain
