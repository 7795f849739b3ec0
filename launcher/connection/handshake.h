// How processes of a run on several hosts identify each other on TCP connections: the first message on a connection
// says who has connected, and holds the run's token.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/connection/line_channel.h"
#include "launcher/connection/tcp_socket.h"

namespace dstrain {

// Returns a new random token, which tells the processes of one run from other programs.
std::string random_token();

// Connections that have been accepted and have not sent their first message.
class PendingConnections {
 public:
  // Gets a connection and its first message; may move from the pointer to keep the connection, which is closed else.
  using Use = std::function<void(std::unique_ptr<SocketChannel>& connection,
                                 const nlohmann::json& message)>;

  // Accepts what has connected to `listener`, and calls `use` for each connection whose first message has arrived.
  // Drops connections that end before it, or that send anything else.
  void serve(const TcpListener& listener, const Use& use);

 private:
  std::vector<std::unique_ptr<SocketChannel>> pending_;
};

}  // namespace dstrain
