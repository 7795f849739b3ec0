#include "launcher/hosts/agent/launcher_link.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("a machine that acknowledges data answers, even if its programs do not") {
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

}  // namespace
}  // namespace dstrain
