// The TCP connections of this host, as the kernel lists them in /proc/net/tcp and tcp6. Parsing is pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

struct TcpSocket {
  std::string local, remote;  // numeric addresses; an IPv4 one in an IPv6 socket as IPv4
  int local_port = 0, remote_port = 0;
  bool connecting = false;  // its peer has not answered yet
  bool established = false;
  int64_t unacknowledged = 0;  // bytes that its peer has not confirmed
  int64_t retries = 0;         // how often they, or a probe, were sent again in vain
  uint64_t inode = 0;
};

// One of the two files. Lines that are none are left out.
std::vector<TcpSocket> parse_tcp_table(std::string_view text);

// Those of this process's network namespace.
std::vector<TcpSocket> tcp_sockets();

// "10.77.0.3 port 41515": the peer that one of these processes of this user waits for to answer; empty:
// none waits.
std::string awaited_peer(const std::vector<pid_t>& processes);

}  // namespace dstrain
