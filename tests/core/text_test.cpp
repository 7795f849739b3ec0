#include "runtime/core/text.h"

#include <catch2/catch.hpp>

using namespace dstrain;

TEST_CASE("bytes are told in three digits") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(999) == "999 B");
  CHECK(bytes_text(1000) == "1.00 kB");
  CHECK(bytes_text(12'345'678) == "12.3 MB");
  CHECK(bytes_text(999'999'999) == "1.00 GB");
  CHECK(bytes_text(123'456'789'012) == "123 GB");
}
