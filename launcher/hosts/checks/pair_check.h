// PairCheck: one round of messages between all pairs of hosts, over TCP: each agent listens, connects
// to every other one at any of its addresses, and gets an answer. Never blocks. Stands on sockets.
// Invariant: all sockets are closed with the object.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/ranks/child.h"

namespace dstrain {

struct PeerAddress {
  std::string name;  // for messages
  int port = 0;
  std::vector<std::string> addresses;  // numeric, IPv4
};
void from_json(const nlohmann::json& json, PeerAddress& peer);
void to_json(nlohmann::json& json, const PeerAddress& peer);

// Whom this host could not reach, and why.
struct Unreached {
  std::string name;
  std::string why;
};
void from_json(const nlohmann::json& json, Unreached& peer);
void to_json(nlohmann::json& json, const Unreached& peer);

class PairCheck {
 public:
  // Listens at `port`, or where that is 0 at any free one. Throws RunError.
  explicit PairCheck(int port = 0);
  int port() const { return port_; }

  // Begins to connect to all peers; serve() goes on with it.
  void meet(const std::vector<PeerAddress>& peers);
  // Answers others and moves the own connections on. Returns those who did not answer, once, when all
  // own connections have succeeded or failed; others are answered for as long as this lives.
  std::optional<std::vector<Unreached>> serve();

 private:
  struct Attempt {
    Descriptor socket;
    std::string address;
    bool sent = false;
  };
  struct Peer {
    std::string name;
    int port = 0;
    std::vector<Attempt> attempts;  // one for each address
    bool reached = false;
    std::string why;  // of the last attempt that failed
  };

  void answer_others();
  void advance(Peer& peer);

  Descriptor listener_;
  int port_ = 0;
  std::vector<Descriptor> guests_;
  std::optional<std::vector<Peer>> peers_;
  int64_t begin_ns_ = 0;
};

}  // namespace dstrain
