#include "launcher/placement/ranges_text.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("numbers are shown as ranges") {
  CHECK(ranges_text({}).empty());
  CHECK(ranges_text({3}) == "3");
  CHECK(ranges_text({0, 1}) == "0-1");
  CHECK(ranges_text({0, 2, 3, 4, 7}) == "0,2-4,7");
  CHECK(ranges_text({1, 2, 3, 5, 7, 8}) == "1-3,5,7-8");
  CHECK(ranges_text({4}) == "4");
}

TEST_CASE("the first numbers are counted from 0") {
  CHECK(first_numbers(0).empty());
  CHECK(first_numbers(3) == std::vector<int>{0, 1, 2});
}

}  // namespace
}  // namespace dstrain
