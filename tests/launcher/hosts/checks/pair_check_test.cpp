#include "launcher/hosts/checks/pair_check.h"

#include <unistd.h>

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("a port in use is reported, and is free again afterwards") {
  int port = 0;
  {
    const PairCheck first("key", 0);
    port = first.port();
    CHECK_THROWS_WITH(
        PairCheck("key", port),
        Catch::StartsWith("cannot listen for other hosts at port " + std::to_string(port) + ": "));
  }
  CHECK(PairCheck("key", port).port() == port);
}

TEST_CASE("hosts that listen are reached, a closed port is reported") {
  PairCheck a("key", 0), b("key", 0), stranger("another key", 0);
  const std::vector<std::string> here = {"127.0.0.1"};
  int closed = 0;
  { closed = PairCheck("key", 0).port(); }
  a.meet({{"b", b.port(), here}, {"c", closed, here}, {"d", stranger.port(), here}});
  b.meet({{"a", a.port(), here}});
  std::optional<std::vector<Unreached>> of_a, of_b;
  for (int i = 0; i < 2000 && !(of_a && of_b); ++i) {
    if (auto failed = a.serve()) of_a = failed;
    if (auto failed = b.serve()) of_b = failed;
    stranger.serve();
    ::usleep(1000);
  }
  REQUIRE(of_a);
  REQUIRE(of_b);
  CHECK(of_b->empty());
  REQUIRE(of_a->size() == 2);
  CHECK((*of_a)[0].name == "c");
  CHECK((*of_a)[0].why == "127.0.0.1 port " + std::to_string(closed) + ": Connection refused");
  CHECK((*of_a)[1].why ==
        "127.0.0.1 port " + std::to_string(stranger.port()) + ": another program answered");
}

}  // namespace
}  // namespace dstrain
