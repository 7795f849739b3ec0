#include "launcher/supervise/rank_reporter.h"

#include <array>
#include <catch2/catch.hpp>
#include <stdexcept>

#include "launcher/process/descriptor.h"

namespace dstrain {
namespace {

// A reporter of the one rank of a board, and what it has sent.
struct Reports {
  explicit Reports(std::function<void()> before_sending)
      : reporter(view, std::move(before_sending)) {}
  bool sent() {
    bool any = false;
    channel.receive([&](const nlohmann::json& message) { any = message.at("say") == "ranks"; });
    return any;
  }
  RankBoard board = RankBoard::create(1);
  BoardView view{board, std::array{0}, ""};
  RankReporter reporter;
  Pipe pipe;
  LineChannel channel{pipe.read.get(), pipe.write.get()};
};

TEST_CASE("a report is sent after each change, and not if what ended the ranks is known by then") {
  bool cause = false;
  int asked = 0;
  Reports reports([&] {
    ++asked;
    if (cause) throw std::runtime_error("the cause");
  });
  reports.reporter.report(reports.channel);
  CHECK(reports.sent());
  CHECK(asked == 1);
  reports.reporter.report(reports.channel, false);  // without the report of each second
  CHECK_FALSE(reports.sent());
  CHECK(asked == 1);
  cause = true;
  CHECK_THROWS_WITH(reports.reporter.report(reports.channel, true, {"another state", {}}),
                    "the cause");
  CHECK_FALSE(reports.sent());
}

}  // namespace
}  // namespace dstrain
