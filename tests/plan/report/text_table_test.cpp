#include "runtime/plan/report/text_table.h"

#include <catch2/catch.hpp>

#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("text_table: columns are as wide as their longest cell") {
  CHECK(text_table({{"a", "bb", "1"}, {"ccc", "d", "22"}, {"", "", ""}}, 1) ==
        "a    bb   1\nccc  d   22\n\n");
  CHECK(text_table({}, 1).empty());
}
