// Who is silent, who is lost, and what becomes of output that nobody takes.
#include "launcher/hosts/silence.h"

#include <catch2/catch.hpp>

#include "launcher/hosts/agent/launcher_link.h"
#include "launcher/hosts/agent/output_backlog.h"

namespace dstrain {
namespace {

constexpr int64_t kSilentSecond = 1'000'000'000;

TEST_CASE("silence is the time in which somebody was there to listen") {
  Silence silence(10 * kSilentSecond);
  for (int64_t t = 10 * kSilentSecond; t <= 13 * kSilentSecond; t += kSilentSecond / 10)
    silence.look(t);
  CHECK(silence.ns() == 3 * kSilentSecond);
  silence.look(1000 * kSilentSecond);  // this process was suspended for long
  CHECK(silence.ns() == 4 * kSilentSecond);
  silence.heard();
  CHECK(silence.ns() == 0);
  silence.look(1000 * kSilentSecond + kSilentSecond / 2);
  CHECK(silence.ns() == kSilentSecond / 2);
}

TEST_CASE("a machine that acknowledges answers, whatever its programs do") {
  const auto connection = parse_ssh_connection("10.77.0.1 50000 10.77.0.2 22");
  REQUIRE(connection);
  TcpSocket socket;
  socket.local = "10.77.0.2";
  socket.local_port = 22;
  socket.remote = "10.77.0.1";
  socket.remote_port = 50000;
  socket.established = true;
  TcpSocket other = socket;
  other.remote_port = 50001;
  CHECK(client_answers(*connection, {other, socket}));
  CHECK_FALSE(client_answers(*connection, {other}));
  socket.unacknowledged = 100;
  socket.retries = 2;
  CHECK(client_answers(*connection, {other, socket}));
  socket.retries = 3;
  CHECK_FALSE(client_answers(*connection, {other, socket}));
  CHECK_FALSE(parse_ssh_connection("10.77.0.1 50000"));
  CHECK(LauncherLink(true).answers());
}

TEST_CASE("output that nobody takes loses progress lines, and says so") {
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
