#include "launcher/hosts/agent/tcp_table.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "launcher/hosts/checks/pair_check.h"

namespace dstrain {
namespace {

constexpr const char* kHeading =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";

TEST_CASE("the kernel's table of connections is read") {
  const auto sockets = parse_tcp_table(std::string(kHeading) +
                                       "   0: 0200A8C0:0016 0100A8C0:C350 01 000000F4:00000000 "
                                       "01:00000019 00000003     0        0 4711 2 0\n"
                                       "   1: 0200A8C0:C351 0100A8C0:1267 02 00000001:00000000 "
                                       "01:00000019 00000001  1000        0 4712 2 0\n"
                                       "   2: 00000000:07E8 00000000:0000 0A 00000000:00000000 "
                                       "00:00000000 00000000     0        5 34 1 0\n"
                                       "   3: nonsense\n");
  REQUIRE(sockets.size() == 3);
  CHECK(sockets[0].local == "192.168.0.2");
  CHECK(sockets[0].local_port == 22);
  CHECK(sockets[0].remote == "192.168.0.1");
  CHECK(sockets[0].remote_port == 50000);
  CHECK(sockets[0].established);
  CHECK(sockets[0].unacknowledged == 244);
  CHECK(sockets[0].retries == 3);
  CHECK(sockets[0].inode == 4711);
  CHECK(sockets[1].connecting);
  CHECK_FALSE(sockets[2].connecting);
  CHECK_FALSE(sockets[2].established);
  CHECK(sockets[2].retries == 5);  // probes
}

TEST_CASE("an IPv4 address in an IPv6 socket is an IPv4 address") {
  const auto sockets = parse_tcp_table(
      "   0: 0000000000000000FFFF00000200A8C0:0016 0000000000000000FFFF00000100A8C0:C350 01 "
      "00000000:00000000 "
      "02:00000019 00000000     0        0 4711 2 0\n"
      "   1: B80D0120000000000000000001000000:0016 B80D0120000000000000000002000000:C350 01 "
      "00000000:00000000 "
      "02:00000019 00000000     0        0 4711 2 0\n");
  REQUIRE(sockets.size() == 2);
  CHECK(sockets[0].remote == "192.168.0.1");
  CHECK(sockets[1].local == "2001:db8::1");
  CHECK(sockets[1].remote == "2001:db8::2");
}

TEST_CASE("this process's own sockets are in the table, and none waits for an answer") {
  const PairCheck door("key", 0);
  const auto sockets = tcp_sockets();
  CHECK(std::any_of(sockets.begin(), sockets.end(),
                    [&door](const TcpSocket& s) { return s.local_port == door.port(); }));
  CHECK(awaited_peer({::getpid()}).empty());
}

}  // namespace
}  // namespace dstrain
