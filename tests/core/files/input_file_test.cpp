#include "runtime/core/files/input_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

std::string error_of(const std::string& path, std::string_view advice = {}) {
  try {
    const InputFile file(path, "the list", advice);
    return "no error";
  } catch (const UserError& e) {
    return e.what();
  }
}

TEST_CASE("a pointer of Git LFS is refused with what fetches the file") {
  const TempDir dir;
  const std::string path = dir.write(
      "config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 27\n");
  CHECK_THROWS_WITH(read_input_file(path, "the list", 1000),
                    path +
                        " is a pointer of Git LFS, not the file that it stands for: `git lfs "
                        "pull` in its folder fetches that");
  CHECK(read_input_file(dir.write("text", "version https"), "the list", 1000) == "version https");
}

TEST_CASE("what is no regular file is refused by its type, and nothing waits for a pipe") {
  const TempDir dir;
  const std::string none = dir / "none", pipe = dir / "pipe", link = dir / "link";
  const std::string socket = dir / "socket";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("pipe", link);
  const int unix_socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  REQUIRE(socket.size() < sizeof address.sun_path);
  std::copy(socket.begin(), socket.end(), address.sun_path);
  REQUIRE(::bind(unix_socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(error_of(none) == "cannot read the list " + none + ": No such file or directory");
  CHECK(error_of(dir.write("file", "x") + "/x") ==
        "cannot read the list " + (dir / "file/x") + ": Not a directory");
  CHECK(error_of(dir.path()) == "the list " + dir.path() + " is a directory, expected a file");
  const std::string no_pipe = " is a pipe, expected a regular file: save what it gives in one";
  CHECK(error_of(pipe) == "the list " + pipe + no_pipe);
  CHECK(error_of(link) == "the list " + link + no_pipe);
  CHECK(error_of("/dev/null") == "the list /dev/null is a device, expected a regular file");
  CHECK(error_of(socket) == "the list " + socket + " is a socket, expected a regular file");
  CHECK(error_of(none, "give another") ==
        "cannot read the list " + none + ": No such file or directory; give another");
  CHECK(error_of("/dev/null", "give another").ends_with("regular file; give another"));
  CHECK_THROWS_WITH(read_input_file(pipe, "the list", 10), "the list " + pipe + no_pipe);
  ::close(unix_socket);
}

TEST_CASE("bytes are read where they are; what lies behind the end is an error") {
  const TempDir dir;
  const InputFile file(dir.write("a", "0123456789"), "the list");
  CHECK(file.size() == 10);
  std::array<char, 4> four{};
  file.read_at(four.data(), 4, 6);
  CHECK(std::string(four.data(), 4) == "6789");
  CHECK_THROWS_WITH(file.read_at(four.data(), 4, 8),
                    file.path() + " is cut short: it ends at byte 10, 2 more are expected there");
  CHECK_THROWS_AS(file.read_at(four.data(), 4, 8), UserError);
}

TEST_CASE("a whole file is read up to a limit") {
  const TempDir dir;
  const std::string path = dir.write("a", "0123456789");
  CHECK(read_input_file(path, "the list", 10) == "0123456789");
  CHECK(read_input_file(dir.write("empty", ""), "the list", 10).empty());
  CHECK_THROWS_WITH(read_input_file(path, "the list", 9),
                    "the list " + path + " has 10 bytes, expected at most 9");
}

TEST_CASE("a pipe that is a descriptor of the process is read to its end, up to the limit") {
  const auto read = [](const char* program, int64_t limit) {
    FILE* pipe = ::popen(program, "r");
    REQUIRE(pipe != nullptr);
    const std::string path = "/dev/fd/" + std::to_string(::fileno(pipe));
    std::string text;
    try {
      text = read_input_file(path, "the list", limit);
    } catch (const UserError& e) {
      text = std::string(e.what()).substr(("the list " + path).size());
    }
    ::pclose(pipe);
    return text;
  };
  CHECK(read("printf abc; sleep 0.01; printf def", 6) == "abcdef");
  CHECK(read("true", 6).empty());
  CHECK(read("yes | head -c 200000", 200000).size() == 200000);
  CHECK(read("printf abcdefg", 6) == " has more than 6 bytes, expected at most these");
}

TEST_CASE("a byte order mark is no part of a text") {
  CHECK(without_byte_order_mark("\xef\xbb\xbf"
                                "a") == "a");
  CHECK(without_byte_order_mark("\xef\xbb\xbf").empty());
  CHECK(without_byte_order_mark("\xef\xbb") == "\xef\xbb");
  CHECK(without_byte_order_mark("a\xef\xbb\xbf") == "a\xef\xbb\xbf");
}

}  // namespace
}  // namespace dstrain
