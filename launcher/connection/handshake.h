// How processes of a run on several hosts identify each other on TCP connections. Each end sends a random challenge and
// proves by HMAC-SHA-256 of both that it knows the key, without telling it; every later message carries an HMAC of
// itself and its number, with keys of this connection and direction. Nothing is encrypted.
//
//   acceptor                       connector
//   {challenge}                    {challenge, proof}
//   {proof}, or {refused} and the end
//                                  the greeting: the first message that carries an HMAC
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

// Connections that have been accepted and whose greeting has not arrived.
class PendingConnections {
 public:
  // `key`: that the other end must know.
  explicit PendingConnections(std::string key) : key_(std::move(key)) {}

  // Gets a connection and its greeting. May move from the pointer to keep the connection, which must then live longer
  // than this call; else it is closed. An exception of message_fault() says that the greeting is malformed.
  using Use = std::function<void(std::unique_ptr<SocketChannel>& connection,
                                 const nlohmann::json& greeting)>;

  // Accepts what has connected to `listener`, and calls `use` for each connection whose greeting has arrived. Drops
  // connections that end before it, that do not prove to know the key, or send a message above kLongestGreeting.
  // `now_ns`: of monotonic_ns().
  void serve(const TcpListener& listener, int64_t now_ns, const Use& use);

  size_t count() const { return pending_.count(); }
  // How many connections could not prove that they know the key.
  int64_t refused() const { return refused_; }

 private:
  struct Pending {
    explicit Pending(Descriptor socket);
    std::unique_ptr<SocketChannel> connection;
    std::string challenge;  // this end's; empty once the other end has answered it
  };

  bool serve(Pending& pending, const Use& use);
  void answer(Pending& pending, const nlohmann::json& message);

  std::string key_;
  NewConnections<Pending> pending_;
  int64_t refused_ = 0;
};

// The connecting end.
class Handshake {
 public:
  Handshake(Descriptor connection, std::string key);

  enum class State : uint8_t {
    going_on,
    done,     // the other end knows the key
    refused,  // the other end says that this one does not know the key
    failed    // the connection ended, or the other end does not know the key
  };
  // Continues with what has arrived. Never blocks.
  State advance();
  // Returns the connection, once, when the state is `done`.
  std::unique_ptr<SocketChannel> take() { return std::move(connection_); }

 private:
  void read(const nlohmann::json& message);

  std::string key_;
  std::string own_challenge_, challenge_;  // that of the other end, once it has arrived
  std::unique_ptr<SocketChannel> connection_;
  State state_ = State::going_on;
};

}  // namespace dstrain
