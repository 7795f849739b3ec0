#include "runtime/config/json/tree.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace dstrain {

const Member* Node::member(std::string_view key) const {
  for (const Member& m : members)
    if (m.key == key) return &m;
  return nullptr;
}

const Member* find(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (true) {
    const size_t dot = path.find('.');
    const Member* member = node->member(path.substr(0, dot));
    if (!member || dot == std::string_view::npos) return member;
    node = &member->value;
    path.remove_prefix(dot + 1);
  }
}

std::string json_text(double value) {
  char buffer[32];
  const auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

std::string json_text(std::string_view value) {
  return nlohmann::json(value).dump();
}

std::string json_text(const Node& node) {
  std::string out;
  switch (node.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::boolean:
      return node.boolean ? "true" : "false";
    case Node::Kind::integer:
      return std::to_string(node.integer);
    case Node::Kind::real:
      return json_text(node.real);
    case Node::Kind::string:
      return json_text(std::string_view(node.text));
    case Node::Kind::array:
      for (const Node& item : node.items) out += (out.empty() ? "" : ", ") + json_text(item);
      return "[" + out + "]";
    case Node::Kind::object:
      for (const Member& m : node.members)
        out += (out.empty() ? "" : ", ") + json_text(std::string_view(m.key)) + ": " +
               json_text(m.value);
      return "{" + out + "}";
  }
  return out;
}

}  // namespace dstrain
