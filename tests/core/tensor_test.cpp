#include "runtime/core/tensor.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("a shape has up to four dimensions, and a fifth is refused") {
  CHECK(Shape{}.elements() == 1);
  Shape shape{2, 3, 5};
  shape.append(7);
  CHECK(shape == Shape{2, 3, 5, 7});
  CHECK(shape.elements() == 210);
  CHECK(shape[-1] == 7);
  CHECK_THROWS_WITH(shape.append(9), Catch::Contains("9 is added to the shape (2, 3, 5, 7)"));
  CHECK(shape == Shape{2, 3, 5, 7});
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5}), InternalError);
}

}  // namespace
}  // namespace dstrain
