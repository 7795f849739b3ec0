// The TCP connections of this host, as the kernel lists them in /proc/net/tcp and tcp6.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// One TCP socket of this host: a line of the kernel's table.
struct TcpSocket {
  std::string local, remote;  // numeric addresses; IPv4 also for an IPv4 peer of an IPv6 socket
  int local_port = 0, remote_port = 0;
  bool connecting = false;  // the peer has not answered yet
  bool established = false;
  int64_t unacknowledged = 0;  // bytes that the peer has not acknowledged
  int64_t retries = 0;  // how often they, or a keepalive probe, were sent again without an answer
  uint64_t inode = 0;
};

// Parses one of the two files. Skips lines that describe no socket. Pure.
std::vector<TcpSocket> parse_tcp_table(std::string_view text);

// Returns the sockets of this process's network namespace.
std::vector<TcpSocket> tcp_sockets();

// Returns the peer to which one of these processes is still connecting, for example "10.77.0.3 port 41515"; empty if
// there is none.
std::string awaited_peer(const std::vector<pid_t>& processes);

}  // namespace dstrain
