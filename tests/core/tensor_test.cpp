#include "runtime/core/tensor.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("a shape has up to eight dimensions, and a ninth is refused") {
  CHECK(Shape{}.elements() == 1);
  Shape shape{2, 3, 5, 1, 1, 1, 1};
  shape.append(7);
  const Shape full{2, 3, 5, 1, 1, 1, 1, 7};
  CHECK(shape == full);
  CHECK(shape.elements() == 210);
  CHECK(shape[-1] == 7);
  CHECK_THROWS_WITH(shape.append(9),
                    Catch::Contains("9 is added to the shape (2, 3, 5, 1, 1, 1, 1, 7)"));
  CHECK(shape == full);
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), InternalError);
}

}  // namespace
}  // namespace dstrain
