#include "runtime/storage/free_space.h"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

TEST_CASE("a lack of space is reported with both sizes") {
  CHECK(lack_of_space("saving step 4", 1000, 1000, "out").empty());
  CHECK(lack_of_space("saving step 4", 1000, std::nullopt, "out").empty());
  CHECK(lack_of_space("saving step 4", 2000, 1000, "out") ==
        "saving step 4 needs 2.00 kB, and 1.00 kB are free in out");
  const TempDir folder;
  CHECK(free_bytes(folder.path()).value_or(0) > 0);
  CHECK_FALSE(free_bytes(folder / "none"));
}

}  // namespace
}  // namespace dstrain
