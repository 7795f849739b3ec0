// PairCheck: checks that all pairs of hosts can connect over TCP. Each agent listens, connects to every other host at
// all of its addresses, and expects an answer. Question and answer prove that they come from processes of the run, which
// are told a key. Never blocks. Invariant: all sockets are closed with the object.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/connection/new_connections.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/process/descriptor.h"

namespace dstrain {

// The addresses and the port at which another host listens for PairCheck.
struct PeerAddress {
  std::string name;  // for messages
  int port = 0;
  std::vector<std::string> addresses;  // numeric, IPv4
};
void from_json(const nlohmann::json& json, PeerAddress& peer);
void to_json(nlohmann::json& json, const PeerAddress& peer);

// A host to which this host could not connect, and the reason.
struct Unreached {
  std::string name;
  std::string why;
};
void from_json(const nlohmann::json& json, Unreached& peer);
void to_json(nlohmann::json& json, const Unreached& peer);

class PairCheck {
 public:
  // Listens at `port`, or at a free one if it is 0, of a numeric address, "0.0.0.0" for all. `key`: of the run. Throws
  // RunError.
  PairCheck(std::string key, int port, const std::string& address = "0.0.0.0");
  int port() const { return listener_.port(); }

  // Starts to connect to all peers.
  void meet(const std::vector<PeerAddress>& peers);
  // Answers other hosts and continues this one's connections; must be called repeatedly. Returns the peers that were
  // not reached, once, when all connections have succeeded or failed. Other hosts are answered after that too.
  std::optional<std::vector<Unreached>> serve();

 private:
  struct Attempt {
    Descriptor socket;
    std::string address;
    std::string challenge;  // that was sent; empty before
  };
  struct Peer {
    std::string name;
    int port = 0;
    std::vector<Attempt> attempts;  // one for each address
    bool reached = false;
    std::string why;  // the reason of the last attempt that failed
  };

  void answer_others();
  void advance(Peer& peer);

  std::string key_;
  TcpListener listener_;
  NewConnections<Descriptor> unanswered_;  // whose question has not arrived
  std::optional<std::vector<Peer>> peers_;
  int64_t begin_ns_ = 0;
};

}  // namespace dstrain
