#include "runtime/comm/world.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Makes the communicator of a world of four ranks with DSTRAIN_COMM set to `choice`, which is checked before
// anything else happens.
void join_four_ranks_with(const std::string& choice) {
  ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  ::setenv("DSTRAIN_COMM", choice.c_str(), 1);
  try {
    make_communicator();
  } catch (...) {
    ::unsetenv("OMPI_COMM_WORLD_SIZE");
    ::unsetenv("DSTRAIN_COMM");
    throw;
  }
}

TEST_CASE("a DSTRAIN_COMM that means nothing is refused, with what is expected") {
  const std::string start = "the environment variable DSTRAIN_COMM is ";
  REQUIRE_THROWS_WITH(join_four_ranks_with("shared"),
                      start + "'shared', expected 'auto', 'mpi', 'hosts:N' or 'hosts:0,0,1,...'");
  REQUIRE_THROWS_WITH(join_four_ranks_with("hosts:"),
                      start + "'hosts:', expected numbers after 'hosts:'");
  REQUIRE_THROWS_WITH(join_four_ranks_with("hosts:two"),
                      start + "'hosts:two', expected numbers after 'hosts:'");
  REQUIRE_THROWS_WITH(join_four_ranks_with("hosts:0,,1,1"),
                      start + "'hosts:0,,1,1', expected numbers after 'hosts:'");
  REQUIRE_THROWS_WITH(join_four_ranks_with("hosts:5"), start + "'hosts:5', expected 1 to 4 hosts");
  REQUIRE_THROWS_WITH(join_four_ranks_with("hosts:0,1"),
                      start + "'hosts:0,1', expected a host for each of 4 ranks");
}

TEST_CASE("more ranks than can share a machine's memory are told how many can") {
  ::setenv(kWorldSizeVariable, "257", 1);
  ::setenv(kWorldRankVariable, "0", 1);
  CHECK_THROWS_WITH(make_communicator(), Catch::Contains("257 ranks") &&
                                             Catch::Contains("at most 256 can share") &&
                                             Catch::Contains("use fewer ranks"));
  ::unsetenv(kWorldSizeVariable);
  ::unsetenv(kWorldRankVariable);
}

}  // namespace
}  // namespace dstrain
