#include "launcher/placement/gpus.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("ranks learn the GPUs of their slots where those are not the first ones") {
  CHECK(gpus_text({{"node1", {0, 1}, 0}, {"node2", {0, 1, 2}, 2}}) == "");
  CHECK(gpus_text({{"node1", {0, 1}, 0}, {"node2", {2, 3}, 2}}) == "0,1,2,3");
  CHECK(gpus_text({{"node1", {1}, 0}}) == "1");
}

TEST_CASE("a rank uses the GPU of its slot, or the GPUs of its host in turn") {
  CHECK(gpu_of_rank("", 5, 1, 4) == 1);
  CHECK(gpu_of_rank("", 5, 5, 4) == 1);  // more ranks than GPUs
  CHECK(gpu_of_rank("", 5, 5, 0) == 0);
  CHECK(gpu_of_rank("0,1,6,7", 0, 0, 8) == 0);
  CHECK(gpu_of_rank("0,1,6,7", 2, 0, 8) == 6);
  CHECK(gpu_of_rank("0,1,6,7", 3, 1, 8) == 7);
}

TEST_CASE("a slot without a GPU is refused") {
  CHECK_THROWS_WITH(gpu_of_rank("0,1,6,7", 2, 0, 4),
                    Catch::Contains("rank 2 has slot 6 of its host, which has GPUs 0 to 3"));
  CHECK_THROWS_WITH(gpu_of_rank("0,1", 2, 0, 4), Catch::Contains("it names no GPU for rank 2"));
}

}  // namespace
}  // namespace dstrain
