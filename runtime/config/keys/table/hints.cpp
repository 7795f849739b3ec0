// Hints: what a key that does not exist may have meant. Names of other programs come first, then the same name in another
// section, then a name that is spelt much alike.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/keys/table/numbers.h"
#include "runtime/config/keys/table/other_names.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

std::string_view parent_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

std::string_view leaf_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

// Returns whether a key without an effect is too deep to be meant by a name at another place.
bool minor(const KeySpec& spec) {
  return spec.state == State::no_effect && !parent_of(parent_of(spec.key)).empty();
}

// Returns whether any value of the key has an effect.
bool has_effect(const KeySpec& spec) {
  return spec.state != State::refused && spec.state != State::not_yet &&
         spec.rule != &rules::kRefusedIfEnabled;
}

// Returns whether `key` would take the value: its type, and of a section one key at least.
bool would_take(const Facts& facts, std::string_view key, const Node& value) {
  const KeySpec* spec = find_key(facts, key);
  if (!spec || !has_effect(*spec)) return false;
  if (value.is(Node::Kind::null) || value.is_auto()) return true;
  if (spec->type == Type::section)
    return std::ranges::any_of(value.members, [&](const Member& m) {
      return find_key(facts, fmt::format("{}.{}", key, m.key)) != nullptr;
    });
  // Another name of a key that has a rule takes another form of value.
  const KeySpec& target = spec->rule ? *spec : target_of(facts, *spec);
  if (!type_error(target, value).empty()) return false;
  return !target.rule || !is_error(target.rule->judge(facts, target, value).state);
}

// Returns the value as the text of an option --set, which reads it back the same; empty: it is too long for a command line.
std::string text_for_set(const Node& value) {
  constexpr size_t longest = 1000;
  const std::string json = json_text(value);
  if (json.size() > longest) return "";
  const bool word = value.is(Node::Kind::string) && !value.text.empty() &&
                    std::isalpha(static_cast<unsigned char>(value.text[0])) != 0 &&
                    !one_of("true|false|null", value.text);
  return word ? value.text : json;
}

Hint mean(const Facts& facts, std::string_view key, const Node& value) {
  if (key.empty()) return {};
  Hint hint{fmt::format(" (did you mean {}?)", key), std::string(key), "", changes_no_number(key)};
  if (would_take(facts, key, value)) hint.value = text_for_set(value);
  return hint;
}

// Returns what the name of the precision asks for.
Hint on_precision(std::string_view advice, const Node& value) {
  Hint hint{fmt::format(" ({})", advice), "", "", false};
  hint.key = precision_key(value.is(Node::Kind::integer) ? json_text(value) : value.text);
  if (!hint.key.empty())
    hint.value = "true";
  else
    hint.idle = value.is_auto() || value.is(Node::Kind::null) ||
                one_of("no|fp32|float32|float|32", lower_case(value.text));
  return hint;
}

// Returns what a name of another program means that no key takes as it is.
Hint on_advice(const OtherName& other, const Node& value) {
  Hint hint;
  const std::string words = text_for_set(value);
  if (other.option.empty())
    hint.text = fmt::format(" ({})", other.advice);
  else if (value.is(Node::Kind::boolean) || value.is(Node::Kind::null) || words.empty())
    hint.text = fmt::format(" (say it with the option {})", other.option);
  else
    hint.text = fmt::format(" (say it with the option {} {})", other.option, printable(words));
  hint.key = other.key;
  hint.idle = other.idle || value.is(Node::Kind::null);
  return hint;
}

}  // namespace

std::string_view key_called(const ModelRegistry& models, std::string_view name) {
  if (const OtherName* other = find_other_name(name)) return other->key;
  std::string folded = lower_case(name);
  std::ranges::replace(folded, '-', '_');
  for (const KeySpec& spec : models.keys())
    if (!spec.called.empty() && one_of(spec.called, folded)) return spec.key;
  return {};
}

Hint hint_on(const Facts& facts, std::string_view key, const Node& value) {
  const std::string_view parent = parent_of(key), leaf = leaf_of(key);
  const OtherName* const other = find_other_name(leaf, parent);
  if (other && names_precision(leaf)) return on_precision(other->advice, value);
  if (other && (other->key.empty() || !other->advice.empty())) return on_advice(*other, value);
  // The value may have another form there: gradient_checkpointing is true, dstrain.recompute an interval.
  std::string_view called = other ? other->key : key_called(*facts.models, leaf);
  if (called == key || (!other && !find_key(facts, called))) called = {};
  const auto named = [&] {
    Hint hint = mean(facts, called, value);
    if (other) hint.idle |= other->idle;
    return hint;
  };
  if (!called.empty() && parent.empty()) return named();
  std::vector<std::string> siblings, elsewhere;
  for (const KeySpec& spec : facts.models->keys()) {
    const bool sibling = parent_of(spec.key) == parent;
    const bool same = !sibling && edit_distance(leaf_of(spec.key), leaf) == 0 &&
                      spec.key != parent && !minor(spec);
    if ((!sibling && !same) || find_key(facts, spec.key) != &spec) continue;
    if (sibling)
      siblings.emplace_back(leaf_of(spec.key));
    else
      elsewhere.emplace_back(spec.key);
  }
  // A name that exists in one other section is more likely misplaced than misspelt. A name that exists in several
  // (`enabled`) gives no hint.
  std::string likely;
  if (elsewhere.size() == 1)
    likely = elsewhere[0];
  else if (const std::string near = nearest(leaf, siblings); !near.empty())
    likely = parent.empty() ? near : fmt::format("{}.{}", parent, near);
  if (!likely.empty() && would_take(facts, likely, value)) return mean(facts, likely, value);
  if (!called.empty() || likely.empty()) return named();
  // A near name is a typing error, though the value has another form; a name far from it is another one.
  const bool far = edit_distance(leaf, leaf_of(likely)) > 2;
  return {"", "", "", far || changes_no_number(likely) || !has_effect(*find_key(facts, likely))};
}

}  // namespace dstrain
