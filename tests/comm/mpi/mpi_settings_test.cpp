#include "runtime/comm/mpi/mpi_settings.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

namespace dstrain {
namespace {

TEST_CASE(
    "interfaces of containers and virtual machines are told from those that lead to other hosts") {
  const std::vector<std::string> names = {"lo",     "eth0",        "docker0", "br0",    "bond0",
                                          "virbr0", "br-3f9a0c11", "ib0",     "vethab1"};
  REQUIRE(inner_interfaces(names) ==
          std::vector<std::string>{"docker0", "virbr0", "br-3f9a0c11", "vethab1"});
}

TEST_CASE("settings of the user stay") {
  ::setenv("OMPI_MCA_btl_tcp_eager_limit", "1234", 1);
  ::unsetenv("OMPI_MCA_btl_tcp_rndv_eager_limit");
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
  prepare_mpi_settings();
  REQUIRE(std::getenv("OMPI_MCA_btl_tcp_eager_limit") == std::string("1234"));
  REQUIRE(std::getenv("OMPI_MCA_btl_tcp_rndv_eager_limit") == std::string("270336"));
  REQUIRE(std::getenv("OMPI_MCA_mpi_yield_when_idle") == std::string("1"));
  ::unsetenv("OMPI_MCA_btl_tcp_eager_limit");
  ::unsetenv("OMPI_MCA_btl_tcp_rndv_eager_limit");
  ::unsetenv("OMPI_MCA_mpi_yield_when_idle");
}

}  // namespace
}  // namespace dstrain
