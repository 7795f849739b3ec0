#include "runtime/core/files/atomic_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

TEST_CASE("a file is replaced as a whole and nothing remains beside it") {
  TempDir dir;
  const std::string path = dir / "a.json";
  write_file(path, "first");
  CHECK(bytes_of_file(path) == "first");
  write_file(path, "2");
  CHECK(bytes_of_file(path) == "2");
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("until commit the old file stands, and without it nothing new remains") {
  TempDir dir;
  const std::string path = dir.write("a.bin", "old");
  {
    NewFile file(path);
    file.write_at("new", 3, 0);
    CHECK(bytes_of_file(path) == "old");
    CHECK(std::filesystem::exists(path + ".tmp"));
  }
  CHECK(bytes_of_file(path) == "old");
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("a full disk is a RunError with path, offset and advice; the old file stands") {
  TempDir dir;
  const std::string path = dir.write("a.bin", "old");
  const std::string big(200'000, 'x');
  std::string message;
  {
    FileSizeLimit limit(100'000);
    try {
      write_file(path, big);
    } catch (const RunError& error) {
      message = error.what();
    }
  }
  CHECK_THAT(message, Contains("a.bin.tmp") && Contains("at offset 100000 of") &&
                          Contains("100000 bytes") && Contains("File too large") &&
                          Contains("ulimit"));
  CHECK(bytes_of_file(path) == "old");
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("a link that waits where a file is written is replaced, and its target stays") {
  TempDir dir;
  const std::string target = dir.write("target", "precious"), path = dir / "a.json";
  for (const std::string& name : {path, path + ".tmp"})
    std::filesystem::create_symlink(target, name);
  write_file(path, "new");
  CHECK(bytes_of_file(path) == "new");
  CHECK_FALSE(std::filesystem::is_symlink(path));
  CHECK(bytes_of_file(target) == "precious");
  dir.write("a.json.tmp", "left behind");
  write_file(path, "newer");
  CHECK(bytes_of_file(path) == "newer");
}

TEST_CASE("the device that is always full says so") {
  File full = File::create("/dev/full");
  try {
    full.write_at("x", 1, 0);
    FAIL("written to a full device");
  } catch (const RunError& error) {
    CHECK_THAT(error.what(),
               Contains("/dev/full") && Contains("No space left") && Contains("--output"));
  }
}

TEST_CASE("a place that does not exist is a RunError that names it") {
  TempDir dir;
  CHECK_THROWS_WITH(write_file(dir / "none/a.json", "x"),
                    Contains("none/a.json.tmp") && Contains("No such file"));
  CHECK_THROWS_AS(write_file(dir / "none/a.json", "x"), RunError);
  const std::string file = dir.write("file", "x");
  CHECK_THROWS_WITH(make_directory(file + "/sub"),
                    Contains("file/sub") && Contains("Not a directory"));
}

TEST_CASE("a file that the user names is replaced where its link leads, and a device is not") {
  TempDir dir;
  CHECK(file_to_replace(dir / "new") == dir / "new");
  CHECK(file_to_replace("new") == "new");
  const std::string file = dir.write("file", "x"), link = dir / "link", dangling = dir / "dangling";
  std::filesystem::create_symlink("file", link);
  std::filesystem::create_symlink(dir / "none", dangling);
  CHECK(file_to_replace(file) == file);
  CHECK(file_to_replace(link) == file);
  CHECK(file_to_replace(dangling) == dir / "none");
  const std::string fifo = dir / "pipe", to_fifo = dir / "to_pipe";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  std::filesystem::create_symlink(fifo, to_fifo);
  for (const std::string& special : {fifo, to_fifo, std::string("/dev/null"), dir.path()})
    CHECK_THROWS_WITH(file_to_replace(special),
                      "cannot replace " + special + ": it is not a regular file; name another one");
}

TEST_CASE("directories are made with their parents, and making them again is no error") {
  TempDir dir;
  make_directory(dir / "a/b/c");
  make_directory(dir / "a/b/c");
  CHECK(std::filesystem::is_directory(dir / "a/b/c"));
}

}  // namespace
}  // namespace dstrain
