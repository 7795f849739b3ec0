#include "runtime/comm/devices/device_comm.h"

#include <catch2/catch.hpp>

namespace dstrain {

TEST_CASE("devices are told apart by all numbers of their identity") {
  CHECK(count_equal(std::vector<double>{1, 2}, 2) == std::vector{1});
  CHECK(count_equal(std::vector<double>{1, 2, 1, 3, 2, 2}, 2) == std::vector{1, 1, 1});
  CHECK(count_equal(std::vector<double>{1, 2, 1, 3, 1, 2}, 2) == std::vector{2, 1, 2});
}

}  // namespace dstrain
