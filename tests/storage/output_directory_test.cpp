#include "runtime/storage/output_directory.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE("an output directory that was renamed, removed or replaced is not there any more") {
  const TempDir dir;
  fs::create_directory(dir / "out");
  const OutputDirectory output(dir / "out");
  CHECK(output.is_there());
  CHECK_NOTHROW(output.require());
  fs::rename(dir / "out", dir / "old");
  CHECK_FALSE(output.is_there());
  fs::create_directory(dir / "out");
  CHECK_FALSE(output.is_there());
  CHECK_THROWS_WITH(output.require(), Catch::Contains("the output directory " + (dir / "out") +
                                                      " was removed or replaced"));
  fs::remove(dir / "out");
  fs::rename(dir / "old", dir / "out");
  CHECK(output.is_there());
  fs::remove(dir / "out");
  CHECK_FALSE(output.is_there());
  for (int i = 0; i < 20;
       ++i) {  // file systems give the number of a removed directory to the next one
    fs::create_directory(dir / "out");
    CHECK_FALSE(output.is_there());
    fs::remove(dir / "out");
  }
}

TEST_CASE("an output directory has to exist") {
  const TempDir dir;
  CHECK_THROWS_AS(OutputDirectory(dir / "nowhere"), RunError);
}

}  // namespace
}  // namespace dstrain
