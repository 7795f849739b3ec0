// The files of a disk store: their space, and that none is left, however a process ends.
#include "runtime/storage/disk/swap_files.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/storage/disk/captured_warnings.h"
#include "tests/storage/disk/fake_io.h"
#include "tests/storage/waiting_process.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST_CASE("a swap file has its blocks from the beginning, and no name") {
  const TempDir dir;
  FakeIo calls;
  calls.no_unnamed = GENERATE(false, true);
  const SwapFiles files({dir.path()}, 1 << 20, calls);
  CHECK(files_in(dir.path()).empty());
  struct stat status {};
  REQUIRE(::fstat(files.descriptor(0), &status) == 0);
  CHECK(status.st_nlink == 0);
  CHECK(status.st_size == 1 << 20);
  CHECK(status.st_blocks * 512 >= 1 << 20);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("directories are made in existing ones, and one that cannot be is named") {
  const TempDir dir;
  FakeIo calls;
  { const SwapFiles files({dir / "a", dir / "c/"}, 4096, calls); }
  CHECK(std::filesystem::is_directory(dir / "a"));
  CHECK(std::filesystem::is_directory(dir / "c"));
  CHECK(existing_swap_directory(dir / "a") == dir / "a");
  CHECK(existing_swap_directory(dir / "d") == dir.path());
  CHECK_THROWS_WITH(SwapFiles({dir / "mount/swap"}, 4096, calls),
                    "nvme_path " + (dir / "mount/swap") + ": neither this directory nor " +
                        (dir / "mount") +
                        ", in which it would be made, is there: mount the drive, make the "
                        "directory (mkdir -p), or name another");
  CHECK_FALSE(std::filesystem::exists(dir / "mount"));
  dir.write("file", "");
  CHECK_THROWS_WITH(SwapFiles({dir / "file/x"}, 4096, calls),
                    Contains(dir / "file/x") && Contains("Not a directory"));
  CHECK_THROWS_WITH(SwapFiles({dir / "file"}, 4096, calls),
                    Contains(dir / "file") && Contains("Not a directory"));
  calls.no_unnamed = GENERATE(false, true);
  calls.create_error = EACCES;
  CHECK_THROWS_WITH(SwapFiles({dir / "c"}, 4096, calls),
                    Contains("cannot create a swap file in " + (dir / "c")) &&
                        Contains("Permission denied") && Contains("that this user may write"));
}

TEST_CASE("too little space is refused with both sizes, before a file exists") {
  const TempDir dir;
  FakeIo calls;
  calls.free = 10'000'000;
  CHECK_THROWS_WITH(
      SwapFiles({dir.path()}, 20'000'000, calls),
      Contains("the disk store needs 20.0 MB, and 10.0 MB are free in " + dir.path()));
  // Two files on one file system need twice the space.
  CHECK_THROWS_WITH(SwapFiles({dir / "a", dir / "b"}, 6'000'000, calls),
                    Contains("needs 12.0 MB, and 10.0 MB are free"));
  CHECK(files_in(dir / "a").empty());
  CHECK_NOTHROW(SwapFiles({dir / "a", dir / "b"}, 5'000'000, calls));
}

TEST_CASE("space that another takes in between is an error with the available bytes") {
  const TempDir dir;
  FakeIo calls;
  calls.reserve_error = ENOSPC;
  calls.free = 5'000'000;
  CHECK_THROWS_WITH(SwapFiles({dir.path()}, 4'000'000, calls),
                    Contains("cannot reserve 4.00 MB for the swap file in " + dir.path()) &&
                        Contains("(5.00 MB are free)") && Contains("No space left on device"));
  CHECK(files_in(dir.path()).empty());
}

TEST_CASE("without O_DIRECT there is one warning, whether the flag or the first read fails") {
  const TempDir dir;
  FakeIo calls;
  (GENERATE(true, false) ? calls.no_direct : calls.no_direct_reads) = true;
  const CapturedWarnings warnings;
  const SwapFiles files({dir / "a", dir / "b"}, 4096, calls);
  CHECK_FALSE(files.direct());
  CHECK_THAT(warnings.text(), Contains("has no direct I/O") && Contains(dir / "a"));
  CHECK(warnings.lines() == 1);
}

TEST_CASE("a killed process leaves no swap file") {
  const TempDir dir;
  FakeIo calls;
  calls.no_unnamed = GENERATE(false, true);
  WaitingProcess living([&] { new SwapFiles({dir.path(), dir.path()}, 8192, calls); });
  living.kill();
  CHECK(files_in(dir.path()).empty());
}

}  // namespace
}  // namespace dstrain
