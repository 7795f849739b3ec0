#include "runtime/storage/disk/free_space.h"

#include <catch2/catch.hpp>

#include "runtime/storage/disk/mount.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

TEST_CASE("a lack of space is reported with both sizes") {
  CHECK(lack_of_space("saving step 4", 1000, 1000, "out").empty());
  CHECK(lack_of_space("saving step 4", 1000, std::nullopt, "out").empty());
  CHECK(lack_of_space("saving step 4", 2000, 1000, "out") ==
        "saving step 4 needs 2.00 kB, and 1.00 kB are free in out");
  const TempDir folder;
  CHECK(free_bytes(folder.path()).value_or(0) > 0);
  CHECK_FALSE(free_bytes(folder / "none"));
}

TEST_CASE("the drive of a path is the innermost mount that it lies in, the last one of a name") {
  const TempDir root;
  std::filesystem::create_directories(root / "nvme/swap");
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "nvme2");
  const std::string at = std::filesystem::canonical(root.path()).string();
  root.write("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / " + at +
                                        "/nvme rw shared:1 - autofs none rw\n3 1 8:3 / " + at +
                                        "/nvme rw shared:1 master:2 - xfs /dev/nvme0n1 rw\n");
  CHECK(drive_of(root / "nvme/swap", root.path()) == "/dev/nvme0n1, mounted at " + at + "/nvme");
  CHECK(drive_of(root / "nvme", root.path()) == "/dev/nvme0n1, mounted at " + at + "/nvme");
  CHECK(drive_of(root / "nvme2", root.path()) == "/dev/sda1, mounted at /");
  CHECK(drive_of(root / "none", root.path()).empty());
  const std::optional<Mount> mount = mount_of(root / "nvme/swap", root.path());
  REQUIRE(mount);
  CHECK(mount->type == "xfs");
  CHECK(mount->source == "/dev/nvme0n1");
  CHECK(mount->point == at + "/nvme");
  CHECK_FALSE(mount_of(root / "none", root.path()));
  CHECK(drive_of("/", root / "proc").empty());
  CHECK_FALSE(drive_of("/").empty());
}

}  // namespace
}  // namespace dstrain
