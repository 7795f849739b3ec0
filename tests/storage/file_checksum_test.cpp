#include "runtime/storage/file_checksum.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("different files have different checksums") {
  const std::string base = std::string(DSTRAIN_BINARY_DIR) + "/checksum";
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(base + name) << text;
    return file_checksum(base + name, "the file");
  };
  const std::string one = write("1", "abc");
  CHECK(one == write("2", "abc"));
  CHECK(one != write("3", "abd"));
  CHECK(one != write("4", "abc\n"));
  CHECK_THROWS_WITH(file_checksum(base + "none", "the file"),
                    "cannot read the file " + base + "none: No such file or directory");
  CHECK_THROWS_WITH(file_checksum(DSTRAIN_BINARY_DIR, "the file"),
                    Catch::Contains("is a directory"));
  CHECK_THROWS_WITH(file_checksum("/dev/null", "the file"), Catch::Contains("is a device"));
}

}  // namespace
}  // namespace dstrain
