#include "launcher/nodes/node_address.h"

#include <cstdlib>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr const char* kNodes = "DSTRAIN_NODES";

}  // namespace

void from_json(const nlohmann::json& json, NodeAddress& node) {
  json.at("host").get_to(node.host);
  json.at("addresses").get_to(node.addresses);
  json.at("port").get_to(node.port);
  json.at("token").get_to(node.token);
}

void to_json(nlohmann::json& json, const NodeAddress& node) {
  json = {{"host", node.host},
          {"addresses", node.addresses},
          {"port", node.port},
          {"token", node.token}};
}

void publish_nodes(const std::vector<NodeAddress>& nodes) {
  ::setenv(kNodes, nlohmann::json(nodes).dump().c_str(), 1);
}

NodeAddress node_address(const std::string& host) {
  const char* text = std::getenv(kNodes);
  const auto list = nlohmann::json::parse(text != nullptr ? text : "[]", nullptr, false);
  for (const auto& node : list)
    if (node.is_object() && node.value("host", "") == host) return node.get<NodeAddress>();
  fail_run("there is no node {} in this run", host);
}

}  // namespace dstrain
