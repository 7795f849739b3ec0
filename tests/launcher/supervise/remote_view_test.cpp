#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>

#include "launcher/supervise/report_messages.h"
#include "launcher/supervise/watchers/peer_view.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using nlohmann::json;

// A host of ranks 2 and 3, which counts as lost after `silence_s` seconds, and the other end of its connection.
struct WatchedHost {
  explicit WatchedHost(int64_t silence_s = 5) : view("n2", {2, 3}, silence_s) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    view.connect(std::make_unique<SocketChannel>(Descriptor(ends[0])));
    watcher = std::make_unique<SocketChannel>(Descriptor(ends[1]));
  }
  void report(int first, int second, bool gone = false) {
    json ranks = json::array();
    for (const int rank : {first, second}) {
      RankReport report;
      report.rank = rank;
      report.pid = 100 + rank;
      report.gone = gone;
      ranks.push_back(to_message(report, monotonic_ns()));
    }
    watcher->channel.send({{"say", "ranks"}, {"ranks", ranks}, {"stopped", 15}, {"kills", 1}});
    watcher->channel.flush();
    view.update(false);
  }
  PeerView view;
  std::unique_ptr<SocketChannel> watcher;
};

TEST_CASE("a host's reports are those that its watcher has sent") {
  WatchedHost host;
  CHECK(host.view.ranks().size() == 2);
  CHECK_FALSE(host.view.ranks()[0].joined());
  host.report(2, 3);
  CHECK(host.view.ranks()[1].pid == 103);
  CHECK(host.view.ranks()[1].alive());
  CHECK(host.view.stopped() == 15);
  CHECK(host.view.out_of_memory_kills() == 1);
  CHECK(host.view.lost().empty());
}

TEST_CASE("a watcher is sent something at least once a second") {
  WatchedHost host;
  host.view.update(false);
  int messages = 0;
  host.watcher->channel.receive([&](const json& message) {
    CHECK(message == json{{"do", "alive"}});
    ++messages;
  });
  CHECK(messages == 1);
}

TEST_CASE(
    "a host is lost with its connection, with other ranks or no messages, and after silence") {
  SECTION("connection") {
    WatchedHost host;
    host.report(2, 3);
    host.watcher.reset();
    host.view.update(false);
    CHECK(host.view.lost() == "the connection to its watcher ended");
  }
  SECTION("other ranks") {
    WatchedHost host;
    host.report(3, 4);
    CHECK(host.view.lost() == "its watcher reports other ranks than its own");
    host.report(2, 3);  // nothing more is taken
    CHECK_FALSE(host.view.ranks()[0].joined());
  }
  SECTION("no messages") {
    WatchedHost host;
    REQUIRE(::send(host.watcher->socket.get(), "hello\n", 6, 0) == 6);
    host.view.update(false);
    CHECK(host.view.lost().starts_with("its watcher cannot be understood: "));
  }
  SECTION("silence") {
    WatchedHost host(0);
    host.view.update(false);
    host.view.update(false);
    CHECK(host.view.lost() == "no word from it for 0 s");
    CHECK(host.view.lost_since() <= monotonic_ns());
  }
}

TEST_CASE("a host whose ranks are all gone is not lost with its connection") {
  WatchedHost host;
  host.report(2, 3, true);
  host.watcher.reset();
  host.view.update(false);
  CHECK(host.view.lost().empty());
}

}  // namespace
}  // namespace dstrain
