#include "runtime/comm/communicator.h"

#include <catch2/catch.hpp>

#include "runtime/comm/world.h"

namespace dstrain {
namespace {

TEST_CASE("outside of mpirun a process is alone") {
  REQUIRE(make_communicator()->size() == 1);
}

}  // namespace
}  // namespace dstrain
