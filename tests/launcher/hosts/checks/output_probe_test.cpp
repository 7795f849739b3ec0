#include "launcher/hosts/checks/output_probe.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a probe is seen while it exists, and leaves nothing") {
  const fs::path base = fs::path(DSTRAIN_BINARY_DIR) / "output_probe";
  fs::remove_all(base);
  fs::create_directories(base);
  const std::string output = (base / "runs/one").string();
  {
    const OutputProbe probe(output, "/tmp/dstrain-0123");
    CHECK(fs::exists(probe_file(output, "/tmp/dstrain-0123")));
    CHECK(sees_probe(output, "/tmp/dstrain-0123"));
    CHECK_FALSE(sees_probe(output, "/tmp/dstrain-4567"));
  }
  CHECK(fs::is_empty(base));
  SECTION("what others put there stays") {
    {
      const OutputProbe probe(output, "/tmp/dstrain-0123");
      std::ofstream(fs::path(output) / "metrics.jsonl") << "{}";
    }
    CHECK(fs::exists(fs::path(output) / "metrics.jsonl"));
  }
  SECTION("a file instead of the directory is reported") {
    std::ofstream(base / "runs") << "x";
    CHECK_THROWS_WITH(OutputProbe(output, "/tmp/dstrain-0123"),
                      Catch::Contains("output directory " + output));
  }
}

}  // namespace
}  // namespace dstrain
