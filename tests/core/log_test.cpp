#include "runtime/core/log.h"

#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

namespace dstrain {
namespace {

// What `body` writes to standard error.
std::string captured(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const int old = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  body();
  ::dup2(old, STDERR_FILENO);
  ::close(old);
  ::close(ends[1]);
  std::string text;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  ::close(ends[0]);
  return text;
}

TEST_CASE("a line says how bad it is and, beyond rank 0, who speaks") {
  CHECK(captured([] { log::info("step={} {{}}", 3); }) == "step=3 {}\n");
  CHECK(captured([] { log::warn("slow"); }) == "warning: slow\n");
  log::set_rank(2);
  CHECK(captured([] { log::error("lost %v"); }) == "[rank 2] error: lost %v\n");
  log::set_rank(0);
  CHECK(captured([] { log::info("again"); }) == "again\n");
}

TEST_CASE("a quiet log drops what is less than asked for") {
  log::set_least(log::Level::error);
  CHECK(captured([] {
          log::info("a");
          log::warn("b");
          log::error("c");
        }) == "error: c\n");
  log::set_least(log::Level::info);
}

}  // namespace
}  // namespace dstrain
