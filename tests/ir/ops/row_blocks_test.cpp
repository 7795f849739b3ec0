#include "runtime/ir/ops/row_blocks.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("row blocks cover every row once and are at most 256") {
  for (int64_t r : {0, 1, 63, 64, 65, 16384, 16385, 100000}) {
    const RowBlocks blocks(r);
    CHECK(blocks.count <= 256);
    CHECK(blocks.block % 64 == 0);
    int64_t next = 0;
    for (int64_t b = 0; b < blocks.count; ++b) {
      CHECK(blocks.begin(b) == next);
      CHECK(blocks.end(b) > blocks.begin(b));
      next = blocks.end(b);
    }
    CHECK(next == r);
  }
}

}  // namespace
}  // namespace dstrain
