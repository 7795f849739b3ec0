#include "launcher/nodes/node_link.h"

#include <cstdlib>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr const char* kDoors = "DSTRAIN_NODES";

}  // namespace

void from_json(const nlohmann::json& json, NodeDoor& door) {
  json.at("host").get_to(door.host);
  json.at("addresses").get_to(door.addresses);
  json.at("port").get_to(door.port);
  json.at("token").get_to(door.token);
}

void to_json(nlohmann::json& json, const NodeDoor& door) {
  json = {{"host", door.host},
          {"addresses", door.addresses},
          {"port", door.port},
          {"token", door.token}};
}

void publish_doors(const std::vector<NodeDoor>& doors) {
  ::setenv(kDoors, nlohmann::json(doors).dump().c_str(), 1);
}

NodeDoor door_of(const std::string& host) {
  const char* text = std::getenv(kDoors);
  const auto list = nlohmann::json::parse(text != nullptr ? text : "[]", nullptr, false);
  for (const auto& door : list)
    if (door.is_object() && door.value("host", "") == host) return door.get<NodeDoor>();
  fail_run("there is no node {} in this run", host);
}

}  // namespace dstrain
