#include "runtime/config/keys/dstrain/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

using Kind = Node::Kind;

constexpr std::string_view kMembers = "match|lr_scale|weight_decay|trainable";
constexpr double kMostScale = 1e6;  // of a rate

bool are_patterns(const Node& node) {
  return node.is(Kind::array) && !node.items.empty() &&
         std::ranges::all_of(node.items, [](const Node& item) {
           return item.is(Kind::string) && !item.text.empty();
         });
}

bool is_number(const Node& node, double most) {
  return (node.is(Kind::integer) || node.is(Kind::real)) && node.real >= 0 && node.real <= most;
}

// Returns what a member must be where it is something else; empty: nothing is wrong.
std::string_view expectation_of(const Member& m) {
  if (m.key == "match" && !are_patterns(m.value))
    return "a list of patterns of parameters' names, such as [\"*.bias\"]";
  if (m.key == "lr_scale" && !is_number(m.value, kMostScale)) return "a number from 0 to 1e6";
  if (m.key == "weight_decay" && !is_number(m.value, kMostScale)) return "a number from 0 to 1e6";
  if (m.key == "trainable" && !m.value.is(Kind::boolean)) return "true or false";
  return "";
}

std::string problem_of(const Node& group) {
  if (!group.is(Kind::object)) return "expected an object, found " + printable(json_text(group));
  if (!group.member("match"))
    return "\"match\" is missing: a list of patterns of parameters' names, such as [\"*.bias\"]";
  for (const Member& m : group.members) {
    if (!one_of(kMembers, m.key)) {
      const std::string near = nearest(m.key, split_words(kMembers));
      return fmt::format("unknown member \"{}\"{}", printable(m.key),
                         near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
    }
    if (m.first.line > 0) return fmt::format("\"{}\" is given twice", m.key);
    if (const std::string_view expected = expectation_of(m); !expected.empty())
      return fmt::format("\"{}\": expected {}, found {}", m.key, expected,
                         printable(json_text(m.value)));
  }
  return "";
}

}  // namespace

std::string parameter_groups_problem(const Node& list) {
  if (!list.is(Kind::array))
    return "expected a list of groups such as {\"match\": [\"*.bias\"], \"weight_decay\": 0}, "
           "found " +
           printable(json_text(list));
  for (size_t i = 0; i < list.items.size(); ++i)
    if (const std::string problem = problem_of(list.items[i]); !problem.empty())
      return fmt::format("group {}: {}", i + 1, problem);
  return "";
}

std::vector<ParameterGroup> parameter_groups(const Node& list) {
  std::vector<ParameterGroup> groups;
  for (const Node& node : list.items) {
    ParameterGroup& group = groups.emplace_back();
    for (const Node& pattern : node.member("match")->value.items)
      group.match.push_back(pattern.text);
    if (const Member* m = node.member("lr_scale")) group.lr_scale = m->value.real;
    if (const Member* m = node.member("weight_decay")) group.weight_decay = m->value.real;
    if (const Member* m = node.member("trainable")) group.trainable = m->value.boolean;
  }
  return groups;
}

}  // namespace dstrain
