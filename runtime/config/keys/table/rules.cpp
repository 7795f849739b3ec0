#include "runtime/config/keys/table/rules.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

bool enabled(const Facts& facts, const KeySpec& spec) {
  const std::string_view section =
      spec.type == Type::section ? spec.key : spec.key.substr(0, spec.key.rfind('.'));
  return facts.on(fmt::format("{}.enabled", section));
}

Judgement if_enabled(const Facts& facts, const KeySpec& spec, State state,
                     std::string_view reason) {
  const std::string section(spec.key.substr(0, spec.key.find('.')));
  if (!enabled(facts, spec)) return {State::no_effect, fmt::format("{} is off", section)};
  return {state, fmt::format("{} {}", section, reason), !spec.key.ends_with(".enabled")};
}

// Judges a whole section of a feature that dstrain does not have; `on` is DeepSpeed's default of `enabled`.
Judgement stops_if_on(const KeySpec& spec, const Node& section, bool on, State state) {
  if (section.members.empty()) return {State::no_effect, fmt::format("{} is empty", spec.key)};
  if (const Member* enabled = section.member("enabled"))
    on = to_boolean(enabled->value, takes_quoted(spec.key)).value_or(true);
  if (!on) return {State::no_effect, fmt::format("{} is off", spec.key)};
  return {state, std::string(spec.note)};
}

}  // namespace

namespace rules {

bool lacks_drive(const Facts& facts, std::string_view section) {
  const Member* path = find(*facts.root, fmt::format("{}.nvme_path", section));
  return !path || path->value.is(Node::Kind::null) || path->value.is_auto();
}

Judgement judge_drives(const Node& value) {
  const auto nameless = [](const Node& node) {
    return node.is(Node::Kind::string) && node.text.empty();
  };
  if (nameless(value) || std::ranges::any_of(value.items, nameless))
    return {State::error,
            "has an empty name: expected a directory on the drive, or a list of one for each"};
  return {};
}

constinit const Rule kFlag{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                             if (to_boolean(value).value_or(false))
                               return {State::not_yet, std::string(spec.note)};
                             return {State::no_effect, "off"};
                           },
                           "false: no_effect; true: not_yet"};

constinit const Rule kAboveOne{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                                 if (to_integer(value).value_or(0) > 1) return {};
                                 return {State::no_effect, "off"};
                               },
                               "up to 1: no_effect; more: honoured"};

constinit const Rule kWarns{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                              if (!to_boolean(value).value_or(false))
                                return {State::no_effect, "off"};
                              std::string text = "not available yet: the run goes on without it";
                              if (!spec.note.empty()) text += fmt::format(" ({})", spec.note);
                              return {State::no_effect, text, false, true};
                            },
                            "no_effect; true: with a warning, as it is not available yet"};

constinit const Rule kWarnsIfEnabled{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      const KeySpec* section = find_key(facts, spec.key.substr(0, spec.key.find('.')));
      const bool explained = section && !section->note.empty();
      Judgement j = if_enabled(
          facts, spec, State::no_effect,
          explained ? section->note : "is not available yet: the run goes on without it");
      j.warns = enabled(facts, spec);
      return j;
    },
    "no_effect; section on: with a warning, as the run goes on without it"};

constinit const Rule kIfEnabled{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      if (enabled(facts, spec)) return {};
      return if_enabled(facts, spec, State::honoured, "");
    },
    "section off: no_effect; on: honoured"};

constinit const Rule kRefusedIfEnabled{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      const KeySpec* section = find_key(facts, spec.key.substr(0, spec.key.find('.')));
      return if_enabled(facts, spec, State::refused, section ? section->note : spec.note);
    },
    "section off: no_effect; on: refused"};

constinit const Rule kRefusedIfOn{
    [](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
      return stops_if_on(spec, value, false, State::refused);
    },
    "empty, or without `enabled`, or `enabled` false: no_effect; else refused"};

constinit const Rule kRefusedUnlessOff{
    [](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
      return stops_if_on(spec, value, true, State::refused);
    },
    "empty, or `enabled` false: no_effect; else refused"};

constinit const Rule kNotYetIfOn{
    [](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
      return stops_if_on(spec, value, false, State::not_yet);
    },
    "empty, or without `enabled`, or `enabled` false: no_effect; else not_yet"};

constinit const Rule kRecompute{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (const int64_t interval = to_integer(value, false).value_or(0); interval > 0)
        return {State::honoured,
                fmt::format("of {} the input is kept; the backward pass computes the rest "
                            "again",
                            counted(interval, "layer", "s in a row"))};
      if (lower_case(value.text) == "selective")
        return {State::honoured, "the backward pass computes norms and activation functions again"};
      return {State::no_effect, "off"};
    },
    "0 or \"none\": no_effect; else honoured"};

}  // namespace rules

}  // namespace dstrain
