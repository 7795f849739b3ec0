#include "launcher/hosts/agent/output_backlog.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("output that cannot be sent loses progress lines, and reports it") {
  OutputBacklog backlog(100);
  backlog.passed("the first half, ");
  backlog.add("step=is no progress here\n");
  for (int step = 1; step <= 20; ++step) {
    backlog.add("step=" + std::to_string(step) + " loss=3\n");
    if (step == 10) backlog.add("warning: the disk is nearly full\n");
  }
  backlog.add("bar 20%\rhalf a li");
  const std::string text = backlog.take();
  CHECK(text.starts_with("step=is no progress here\nwarning: the disk is nearly full\n"));
  CHECK(text.find("step=1 ") == std::string::npos);
  CHECK(text.ends_with("half a li"));
  backlog.add("ne\n");
  CHECK(backlog.take().find("ne\n(") == 0);
  CHECK(backlog.empty());
}

TEST_CASE("output that fits is kept as it is") {
  OutputBacklog backlog(100);
  CHECK(backlog.empty());
  backlog.add("step=1 loss=3\n");
  backlog.add("done");
  CHECK(backlog.take() == "step=1 loss=3\ndone");
  CHECK(backlog.empty());
}

TEST_CASE("no amount of output grows without end") {
  OutputBacklog backlog(1000);
  SECTION("lines") {
    for (int i = 0; i < 10'000; ++i) backlog.add("warning: number " + std::to_string(i) + "\n");
    const std::string text = backlog.take();
    CHECK(text.size() < 5000);
    CHECK(text.find("warning: number 9999\n(") != std::string::npos);
  }
  SECTION("one line") {
    for (int i = 0; i < 10'000; ++i) backlog.add("no end ");
    CHECK(backlog.take().size() < 5000);
  }
}

}  // namespace
}  // namespace dstrain
