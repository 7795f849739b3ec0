#include "launcher/process/read_pipe.h"

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <string>

#include "launcher/process/descriptor.h"

namespace dstrain {
namespace {

TEST_CASE("what a pipe holds is read at once") {
  const Pipe pipe;
  ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
  const std::string piece(1000, 'x');
  size_t written = 0;
  for (ssize_t n = 0; (n = ::write(pipe.write.get(), piece.data(), piece.size())) > 0;)
    written += static_cast<size_t>(n);
  REQUIRE(written > 60'000);
  size_t read = 0;
  read_available(pipe.read.get(), [&](std::string_view bytes) { read += bytes.size(); });
  CHECK(read == written);
}

TEST_CASE("a writer who never pauses does not keep the reader") {
  const Pipe pipe;
  size_t read = 0;
  const auto write = [&] { REQUIRE(::write(pipe.write.get(), "more", 4) == 4); };
  write();
  read_available(pipe.read.get(), [&](std::string_view bytes) {
    read += bytes.size();
    REQUIRE(read <= 4 * 100);
    write();
  });
  CHECK(read > 0);
}

}  // namespace
}  // namespace dstrain
