#include "launcher/nodes/node_address.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "launcher/connection/message.h"
#include "launcher/connection/network.h"
#include "launcher/connection/secret.h"
#include "launcher/process/environment.h"
#include "launcher/process/memory_file.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {

using nlohmann::json;

namespace {

constexpr const char* kNodes = "DSTRAIN_NODES";
constexpr int64_t kMostNodesBytes = int64_t{64} << 20;
constexpr const char* kNodeProcess = "DSTRAIN_NODE_PROCESS";

}  // namespace

void from_json(const json& message, NodeAddress& node) {
  message.at("host").get_to(node.host);
  message.at("addresses").get_to(node.addresses);
  node.port = static_cast<int>(integer_member(message, "port", 1, kLastPort));
  message.at("token").get_to(node.token);
  if (node.addresses.size() > kMostAddresses)
    throw MalformedMessage(fmt::format("more than {} addresses", kMostAddresses));
  if (node.token.empty()) throw MalformedMessage("the token is empty");
}

void to_json(json& message, const NodeAddress& node) {
  message = {{"host", node.host},
             {"addresses", node.addresses},
             {"port", node.port},
             {"token", node.token}};
}

void from_json(const json& message, NodeIntroduction& node) {
  message.get_to(node.address);
  node.rank = integer_member(message, "node", INT64_MIN, INT64_MAX);
  node.nnodes = integer_member(message, "nnodes", INT64_MIN, INT64_MAX);
  node.slots = integer_member(message, "slots", INT64_MIN, INT64_MAX);
}

void to_json(json& message, const NodeIntroduction& node) {
  message = node.address;
  message.update({{"node", node.rank}, {"nnodes", node.nnodes}, {"slots", node.slots}});
}

std::string relay_key(const std::string& secret, const std::string& token) {
  return secret.empty() ? token : hmac_sha256(secret, "dstrain relays " + token);
}

Descriptor publish_nodes(const std::vector<NodeAddress>& nodes) {
  Descriptor file = memory_file("dstrain nodes", json(nodes).dump());
  ::setenv(kNodes, fmt::format("/proc/{}/fd/{}", ::getpid(), file.get()).c_str(), 1);
  return file;
}

std::vector<std::string> environment_for_node_zero() {
  std::vector<std::string> variables =
      merged_environment({{kNodeProcess, std::to_string(::getpid())}});
  std::erase_if(variables, [](const std::string& v) { return v.starts_with("SSH_"); });
  return variables;
}

PeerProcess node_process() {
  const char* text = std::getenv(kNodeProcess);
  return text == nullptr ? PeerProcess() : PeerProcess(std::atol(text));
}

NodeAddress node_address(const std::string& host) {
  const char* path = std::getenv(kNodes);
  std::optional<NodeAddress> found;
  const std::string fault = message_fault([&] {
    const std::string text =
        path == nullptr ? "[]" : read_input_file(path, "the file of nodes", kMostNodesBytes);
    for (const json& node : json::parse(text))
      if (node.at("host").get<std::string>() == host) found = node.get<NodeAddress>();
  });
  if (!fault.empty()) fail_run("{} is not what dstrain writes: {}", kNodes, fault);
  if (!found) fail_run("there is no node {} in this run", host);
  return *found;
}

}  // namespace dstrain
