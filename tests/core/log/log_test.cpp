#include "runtime/core/log/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace dstrain {
namespace {

// Returns the text that `body` writes to a descriptor, without what the streams had not yet written.
std::string written_to(int descriptor, const std::function<void()>& body) {
  std::fflush(nullptr);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const int old = ::dup(descriptor);
  ::dup2(ends[1], descriptor);
  body();
  ::dup2(old, descriptor);
  ::close(old);
  ::close(ends[1]);
  std::string text;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  ::close(ends[0]);
  return text;
}

std::string captured(const std::function<void()>& body) {
  std::string output;
  const std::string error =
      written_to(STDERR_FILENO, [&] { output = written_to(STDOUT_FILENO, body); });
  return output + error;
}

TEST_CASE("warnings and errors go to standard error, other lines to standard output") {
  const auto all = [] {
    log::info("a");
    log::warn("b");
    log::error("c");
  };
  std::string output;
  CHECK(written_to(STDERR_FILENO, [&] { output = written_to(STDOUT_FILENO, all); }) ==
        "warning: b\nerror: c\n");
  CHECK(output == "a\n");
}

TEST_CASE("lines can begin with the time") {
  log::set_time_stamps(true);
  log::set_rank(1);
  const std::string line = captured([] { log::info("x"); });
  log::set_rank(0);
  log::set_time_stamps(false);
  CHECK(line.substr(log::time_stamp().size()) == "[rank 1] x\n");
  CHECK(std::count(line.begin(), line.end(), ':') == 2);
}

TEST_CASE("a line says how bad it is and, beyond rank 0, who speaks") {
  CHECK(captured([] { log::info("step={} {{}}", 3); }) == "step=3 {}\n");
  CHECK(captured([] { log::warn("slow"); }) == "warning: slow\n");
  log::set_rank(2);
  CHECK(captured([] { log::error("lost %v"); }) == "[rank 2] error: lost %v\n");
  log::set_rank(3, "a%v{}");
  CHECK(captured([] { log::warn("one\ntwo"); }) == "[rank 3 a%v{}] warning: one\ntwo\n");
  CHECK(captured([] { log::info(""); }) == "[rank 3 a%v{}] \n");
  log::set_rank(0);
  CHECK(captured([] { log::info("again"); }) == "again\n");
}

TEST_CASE("lines of several threads stay whole, and each is written when the call returns") {
  const std::string text(40, 'x');
  const std::string output = captured([&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 20; ++n) log::info("{}", text);
      });
    }
  });
  std::string expected;
  for (int i = 0; i < 80; ++i) expected += text + '\n';
  CHECK(output == expected);
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
