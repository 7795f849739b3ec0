// Files under names that others can foresee: what they have put there is not written to.
#include "runtime/storage/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a link, a directory and a pipe are no output file, and are left as they are") {
  TempDir dir;
  const std::string target = dir.write("target", "precious"), path = dir / "file";
  std::string problem = "something else than a regular file has its name: remove that";
  SECTION("a link") {
    fs::create_symlink(target, path);
    problem =
        "it is a symbolic link, and a run follows none that has the name of its file: remove the "
        "link";
  }
  SECTION("a second name of a file") {
    fs::create_hard_link(target, path);
    problem =
        "the file has 2 names (hard links), and a run would change it under all of them: remove "
        "this one, or copy the folder with cp -r instead of cp -l";
  }
  SECTION("a directory") {
    fs::create_directory(path);
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  }
  CHECK(output_file_problem(path) == problem);
  const OutputFile file = open_output_file(path, O_WRONLY | O_TRUNC);
  CHECK(file.descriptor == -1);
  CHECK(file.problem == problem);
  CHECK(bytes_of_file(target) == "precious");
}

TEST_CASE("a link to nothing makes nothing") {
  TempDir dir;
  fs::create_symlink(dir / "none", dir / "file");
  CHECK(open_output_file(dir / "file", O_RDWR).descriptor == -1);
  CHECK_FALSE(fs::exists(dir / "none"));
}

TEST_CASE("a file is made, and opened again") {
  TempDir dir;
  for (int i = 0; i < 2; ++i) {
    CHECK(output_file_problem(dir / "file").empty());
    const OutputFile file = open_output_file(dir / "file", O_WRONLY | O_APPEND);
    REQUIRE(file.descriptor >= 0);
    CHECK(::write(file.descriptor, "x", 1) == 1);
    ::close(file.descriptor);
  }
  CHECK(bytes_of_file(dir / "file") == "xx");
}

TEST_CASE("a file is emptied where that is asked for") {
  TempDir dir;
  const OutputFile file = open_output_file(dir.write("file", "old"), O_WRONLY | O_TRUNC);
  REQUIRE(file.descriptor >= 0);
  ::close(file.descriptor);
  CHECK(bytes_of_file(dir / "file").empty());
}

TEST_CASE(
    "trying whether files can be made leaves none, and removes those of processes that were killed "
    "meanwhile") {
  TempDir dir;
  dir.write(".dstrain-aB3xyz", "");
  const std::vector<std::string> others{
      dir.write(".dstrain-aB3xy1", "text"), dir.write(".dstrain-long123", ""),
      dir.write(".dstrain.lock", ""), dir.write("dstrain-aB3xyz", "")};
  CHECK(new_file_problem(dir.path()).empty());
  CHECK_FALSE(fs::exists(dir / ".dstrain-aB3xyz"));
  for (const std::string& other : others) CHECK(fs::exists(other));
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 4);
  CHECK(new_file_problem(dir / "none") == "No such file or directory");
}

}  // namespace
}  // namespace dstrain
