// How processes of a run on several hosts identify each other on TCP connections: the first message on a connection
// says who has connected, and holds the run's token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "launcher/connection/line_channel.h"
#include "launcher/connection/new_connections.h"
#include "launcher/connection/tcp_socket.h"

namespace dstrain {

// Returns a new random token, which tells the processes of one run from other programs.
std::string random_token();

// Connections that have been accepted and have not sent their first message.
class PendingConnections {
 public:
  // Gets a connection and its first message. May move from the pointer to keep the connection, which must then live
  // longer than this call; else it is closed. An exception of message_fault() says that the message is malformed.
  using Use = std::function<void(std::unique_ptr<SocketChannel>& connection,
                                 const nlohmann::json& message)>;

  // Accepts what has connected to `listener`, and calls `use` for each connection whose first message has arrived.
  // Drops connections that end before it, that send anything else, or a message above kLongestGreeting. `now_ns`: of
  // monotonic_ns().
  void serve(const TcpListener& listener, int64_t now_ns, const Use& use);

  size_t count() const { return pending_.count(); }

 private:
  struct Pending {
    explicit Pending(Descriptor socket)
        : connection(std::make_unique<SocketChannel>(std::move(socket), kLongestGreeting)) {}
    std::unique_ptr<SocketChannel> connection;
  };

  NewConnections<Pending> pending_;
};

}  // namespace dstrain
