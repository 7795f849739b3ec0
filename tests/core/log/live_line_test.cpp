#include "runtime/core/log/live_line.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>

#include "runtime/core/log/log.h"
#include "runtime/core/rank_board.h"
#include "tests/support/error_terminal.h"

namespace dstrain {
namespace {

const std::string kErase = "\r\x1b[K";

TEST_CASE("the live line is cut to the columns that the terminal has when it is drawn") {
  const ErrorTerminal terminal(12);
  auto line = LiveLine::where_shown();
  REQUIRE(line);
  line->draw("step 1/9 | loss 2");
  CHECK(terminal.text() == kErase + "step 1/9 | ");
  terminal.resize(7);
  line->draw("step 2/9 | loss 2");
  CHECK(terminal.text() == kErase + "step 2");
  terminal.resize(80);
  line->draw("step 3/9 | loss 2");
  CHECK(terminal.text() == kErase + "step 3/9 | loss 2");
  line->clear();
  CHECK(terminal.text() == kErase);
  line->clear();
  CHECK(terminal.text().empty());
}

TEST_CASE("lines appear above the live line, whose width is that of the moment") {
  const ErrorTerminal terminal(40);
  auto line = LiveLine::where_shown();
  REQUIRE(line);
  line->draw("step 1/9 | loss 2");
  terminal.text();
  terminal.resize(9);
  log::warn("x");
  CHECK(terminal.text() == kErase + "warning: x\r\n" + kErase + "step 1/9");
  line->clear();
  terminal.text();
  log::warn("y");
  CHECK(terminal.text() == "warning: y\r\n");
}

TEST_CASE("the live line is drawn at most ten times a second") {
  const ErrorTerminal terminal;
  auto line = LiveLine::where_shown();
  REQUIRE(line);
  const int64_t begin = monotonic_ns();
  int drawn = 0;
  while (drawn < 3) {
    if (!line->due()) continue;
    line->draw("x");
    ++drawn;
  }
  CHECK(monotonic_ns() - begin >= 200'000'000);
  line->clear();
}

TEST_CASE("a terminal that cannot erase a line, and what is no terminal, have no live line") {
  {
    const ErrorTerminal terminal;
    ::setenv("TERM", "dumb", 1);
    CHECK_FALSE(LiveLine::where_shown());
    ::unsetenv("TERM");
    CHECK(LiveLine::where_shown());
  }
  const int before = ::dup(STDERR_FILENO), nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDERR_FILENO);
  const bool shown = LiveLine::where_shown().has_value();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(nowhere);
  CHECK_FALSE(shown);
}

}  // namespace
}  // namespace dstrain
