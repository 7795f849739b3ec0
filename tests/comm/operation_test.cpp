#include "runtime/comm/operation.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("an operation's name tells its number, bytes and dtype") {
  REQUIRE(to_string(OpKey{12, Collective::all_reduce, DType::bf16, 0, 50}) ==
          "all_reduce #12 (100 bytes of bf16)");
  REQUIRE(to_string(OpKey{3, Collective::broadcast, DType::u8, 2, 5}) ==
          "broadcast #3 (5 bytes of u8 from rank 2)");
  REQUIRE(to_string(OpKey{3, Collective::all_to_all, DType::u8, 0, 5}) ==
          "all_to_all #3 (5 bytes of u8)");
  REQUIRE(to_string(OpKey{4, Collective::barrier, DType::f64, 0, 0}) == "barrier #4");
}

}  // namespace
}  // namespace dstrain
