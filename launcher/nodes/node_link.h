// How hosts that were started by hand (--no_ssh) stand in for ssh: node 0 has a program run on another node by a
// relay, which the node there lets in by the word that it told node 0 alone. Stands on nlohmann_json and the
// environment. Invariant: the words are in no command line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dstrain {

// Where a node runs programs for node 0.
struct NodeDoor {
  std::string host;  // what the node calls itself
  std::vector<std::string> addresses;
  int port = 0;
  std::string token;
};
void from_json(const nlohmann::json& json, NodeDoor& door);
void to_json(nlohmann::json& json, const NodeDoor& door);

// Tells all processes that this one starts from now on where the nodes' doors are.
void publish_doors(const std::vector<NodeDoor>& doors);

// The door of `host`. Throws RunError where this process has been told of none.
NodeDoor door_of(const std::string& host);

}  // namespace dstrain
