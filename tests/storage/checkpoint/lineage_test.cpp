#include "runtime/storage/checkpoint/lineage.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/storage/checkpoint/lineage_json.h"

namespace dstrain {
namespace {

TEST_CASE(
    "a lineage contains its own checkpoints and those of its ancestors up to the step it continued "
    "from") {
  const Lineage first = new_lineage("job"), second = branch_of(first, 6),
                third = branch_of(second, 4);
  CHECK(first.id != second.id);
  CHECK((second.contains(second.id, 100) && second.contains(first.id, 6)));
  CHECK_FALSE((second.contains(first.id, 7) || first.contains(second.id, 1)));
  CHECK((third.contains(first.id, 4) && third.contains(second.id, 4)));
  CHECK_FALSE((third.contains(first.id, 5) || third.contains(second.id, 5)));
  for (const Lineage& lineage : {first, second, third})
    CHECK(lineage_from(to_json(lineage)) == lineage);
}

}  // namespace
}  // namespace dstrain
