// TCP sockets over IPv4 that never block: a listener, and a connector that tries several addresses at once. Over them
// watchers find the one on rank 0's host, and nodes that were started by hand find node 0. Invariant: all sockets are
// closed with their objects.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/descriptor.h"

namespace dstrain {

// Returns a new TCP socket that does not block. Throws RunError if the system refuses it.
Descriptor open_tcp_socket();

// Returns the socket address of a port at a numeric IPv4 address; nothing if `address` is not one.
std::optional<sockaddr_in> socket_address(const std::string& address, int port);

// Starts to connect. Returns 0, or the error that prevents it.
int start_connecting(const Descriptor& socket, const sockaddr_in& address);

// Returns the address of this host's end of a connection.
std::string own_address_of(const Descriptor& connection);

// Returns the error of a socket's last operation, 0 if there is none, and clears it.
int socket_error(const Descriptor& socket);

// Returns whether the machine at the other end of a TCP connection acknowledges what is sent to it, even if its program
// reads nothing. Returns nothing if the descriptor is no such connection.
std::optional<bool> peer_answers(int socket);

// The attempts to send data again, without an acknowledgement, from which on the other machine counts as one that does
// not answer. They take two seconds if an answer takes 20 ms. A link that loses frames rarely loses the same one so
// often.
inline constexpr int64_t kVainRetries = 3;

// A TCP socket that listens at a port and accepts connections. Owns the socket. No function blocks.
class TcpListener {
 public:
  // Listens at `port`, or at a free one if it is 0, of a numeric address of this host, "0.0.0.0" for all, even if
  // connections of an earlier listener still wait for their end. Returns nothing, and leaves the reason in errno, if
  // that is impossible.
  static std::optional<TcpListener> at(int port, const std::string& address = "0.0.0.0");
  // Takes over the descriptor of a socket that listens.
  explicit TcpListener(int descriptor) : socket_(descriptor) {}

  int descriptor() const { return socket_.get(); }
  int port() const;
  // Returns the next connection if there is one.
  std::optional<Descriptor> accept() const;

 private:
  explicit TcpListener(Descriptor socket) : socket_(std::move(socket)) {}

  Descriptor socket_;
};

// Connects to a host at whichever of its addresses answers first.
class TcpConnector {
 public:
  TcpConnector(const std::vector<std::string>& addresses, int port);
  // Returns the first connection that is established; nothing while there is none.
  std::optional<Descriptor> connected();

 private:
  std::vector<Descriptor> attempts_;
};

}  // namespace dstrain
