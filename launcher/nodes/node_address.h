// The addresses of nodes, which are hosts that were started by hand (--no_ssh), and what a node tells node 0 about
// itself. Node 0 runs programs on another node through `dstrain relay`, which the node admits if it knows a key.
// Invariant: tokens and keys are in no command line and in no environment, which ranks inherit.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/process/descriptor.h"
#include "runtime/comm/rendezvous/peer_process.h"

namespace dstrain {

// The address at which a node of a run without ssh takes requests of node 0 to run programs.
struct NodeAddress {
  std::string host;                    // the node's host name
  std::vector<std::string> addresses;  // numeric
  int port = 0;
  std::string token;  // of the node; in what node 0 publishes, the relay_key()
};
// Throws MalformedMessage, or an exception of the JSON library.
void from_json(const nlohmann::json& json, NodeAddress& node);
void to_json(nlohmann::json& json, const NodeAddress& node);

// What a node tells node 0 when it connects.
struct NodeIntroduction {
  NodeAddress address;
  int64_t rank = 0, nnodes = 0;  // as on its command line
  int64_t slots = 0;             // the ranks that it offers
};
// Throws MalformedMessage, or an exception of the JSON library.
void from_json(const nlohmann::json& json, NodeIntroduction& node);
void to_json(nlohmann::json& json, const NodeIntroduction& node);

// The most addresses of itself that a node tells.
inline constexpr size_t kMostAddresses = 64;

// Returns the key that node 0's relays prove to a node to know: the token that the node told, or where there is a secret
// what follows from both.
std::string relay_key(const std::string& secret, const std::string& token);

// Lets the relays that this process and its child processes start from now on find the addresses: an environment
// variable names a file in memory, which exists as long as the returned descriptor.
[[nodiscard]] Descriptor publish_nodes(const std::vector<NodeAddress>& nodes);

// Returns the variables of a program that this process runs for node 0: its own without those of an ssh login, in which
// it may have been started and with which the program has nothing to do, and one that names this process.
std::vector<std::string> environment_for_node_zero();

// Returns the process that runs this one for node 0, or one with pid 0.
PeerProcess node_process();

// Returns the address of the node `host`. Throws RunError if this process has not been told one.
NodeAddress node_address(const std::string& host);

}  // namespace dstrain
