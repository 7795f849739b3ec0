#include "runtime/config/key_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "runtime/config/coerce.h"
#include "runtime/config/reader.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

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

std::string_view selected(const Facts& facts, std::string_view key) {
  if (key.substr(0, 10) == "optimizer.") return facts.optimizer;
  if (key.substr(0, 10) == "scheduler.") return facts.scheduler;
  return facts.model;
}

Node default_of(std::string_view key, const Facts& facts) {
  const KeySpec* spec = find_key(facts, key);
  check(spec, "the key table has no {}", key);
  return spec->fallback.empty() ? Node{} : read_value(spec->fallback, Source::file);
}

// The value at `key` where it is there and legal, else the default.
Node legal_or_default(const Facts& facts, std::string_view key) {
  const Member* member = find(*facts.root, key);
  const KeySpec* spec = find_key(facts, key);
  check(spec, "the key table has no {}", key);
  if (member && !member->value.is_auto() && !member->value.is(Node::Kind::null) &&
      type_error(*spec, member->value).empty())
    return member->value;
  return default_of(key, facts);
}

bool enabled(const Facts& facts, const KeySpec& spec) {
  const std::string_view section = spec.type == Type::section ? spec.key : parent_of(spec.key);
  return facts.on(fmt::format("{}.enabled", section));
}

Judgement if_enabled(const Facts& facts, const KeySpec& spec, State state,
                     std::string_view reason) {
  const std::string section(spec.key.substr(0, spec.key.find('.')));
  if (!enabled(facts, spec)) return {State::no_effect, fmt::format("{} is off", section)};
  return {state, fmt::format("{} {}", section, reason), leaf_of(spec.key) != "enabled"};
}

}  // namespace

namespace rules {

constinit const Rule kFlag{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                             if (to_boolean(value).value_or(false))
                               return {State::not_yet, std::string(spec.note)};
                             return {State::no_effect, "off"};
                           },
                           "false: no_effect; true: not_yet"};

constinit const Rule kAboveOne{
    [](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
      if (to_integer(value).value_or(0) > 1) return {State::not_yet, std::string(spec.note)};
      return {State::no_effect, "off"};
    },
    "up to 1: no_effect; more: not_yet"};

constinit const Rule kWatch{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                              if (!to_boolean(value).value_or(false))
                                return {State::no_effect, "off"};
                              std::string text = "not available yet: the run goes on without it";
                              if (!spec.note.empty()) text += fmt::format(" ({})", spec.note);
                              return {State::no_effect, text, false, true};
                            },
                            "no_effect; true: with a warning, as it is not available yet"};

constinit const Rule kWatchIfEnabled{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      Judgement j = if_enabled(facts, spec, State::no_effect,
                               "is not available yet: the run goes on without it");
      j.warns = enabled(facts, spec);
      return j;
    },
    "no_effect; section on: with a warning, as it is not available yet"};

constinit const Rule kRefusedIfEnabled{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      const KeySpec* section = find_key(facts, spec.key.substr(0, spec.key.find('.')));
      return if_enabled(facts, spec, State::refused, section ? section->note : spec.note);
    },
    "section off: no_effect; on: refused"};

}  // namespace rules

bool Facts::on(std::string_view key) const {
  return to_boolean(legal_or_default(*this, key)).value_or(false);
}

std::string Facts::text(std::string_view key) const {
  return legal_or_default(*this, key).text;
}

int64_t Facts::integer(std::string_view key) const {
  return to_integer(legal_or_default(*this, key)).value_or(0);
}

Facts find_facts(const Node& root) {
  Facts f;
  f.root = &root;
  f.model = "gptlite";
  f.optimizer = "adamw";
  if (const std::string model = f.text("dstrain.model.type"); !model.empty()) f.model = model;
  if (const Member* m = find(root, "optimizer.type");
      m && m->value.is(Node::Kind::string) && !m->value.is_auto())
    f.optimizer = lower_case(m->value.text);
  if (const Member* m = find(root, "scheduler.type");
      m && m->value.is(Node::Kind::string) && !m->value.is_auto())
    f.scheduler = m->value.text;
  f.stage = f.integer("zero_optimization.stage");
  f.fp16 = f.on("fp16.enabled");
  f.bf16 = f.on("bf16.enabled");
  f.dynamic_scale = f.fp16 && to_real(legal_or_default(f, "fp16.loss_scale")).value_or(0) == 0;
  f.nvme = f.text("zero_optimization.offload_param.device") == "nvme" ||
           f.text("zero_optimization.offload_optimizer.device") == "nvme";
  return f;
}

std::optional<int64_t> stage_of_sharding(std::string_view strategy) {
  if (strategy == "NO_SHARD") return 0;
  if (strategy == "SHARD_GRAD_OP") return 2;
  if (strategy == "FULL_SHARD") return 3;
  return std::nullopt;
}

const std::vector<KeySpec>& key_table() {
  static const std::vector<KeySpec> table = [] {
    std::vector<KeySpec> all;
    for (auto section : {keys::training, keys::optimizer, keys::scheduler, keys::precision,
                         keys::zero, keys::offload, keys::activation_checkpointing, keys::pipeline,
                         keys::monitoring, keys::others, keys::dstrain})
      std::ranges::move(section(), std::back_inserter(all));
    return all;
  }();
  return table;
}

const KeySpec* find_key(const Facts& facts, std::string_view key, std::string* other) {
  for (const KeySpec& spec : key_table()) {
    if (spec.key != key) continue;
    if (spec.only.empty() || one_of(spec.only, selected(facts, key))) return &spec;
    if (other) *other += fmt::format("{}{}", other->empty() ? "" : "|", spec.only);
  }
  return nullptr;
}

const KeySpec& target_of(const Facts& facts, const KeySpec& spec) {
  if (spec.alias.empty()) return spec;
  const KeySpec* target = find_key(facts, spec.alias);
  check(target, "the alias {} has no target {}", spec.key, spec.alias);
  return *target;
}

bool is_comment(std::string_view name) {
  return name.starts_with('_') || name.starts_with("//") || name.starts_with('#') ||
         one_of("$schema|$comment|comment|comments|description", name);
}

std::string suggestion(const Facts& facts, std::string_view key) {
  const std::string_view parent = parent_of(key), leaf = leaf_of(key);
  std::vector<std::string> siblings, elsewhere;
  for (const KeySpec& spec : key_table()) {
    if (!spec.only.empty() && !one_of(spec.only, selected(facts, spec.key))) continue;
    if (parent_of(spec.key) == parent)
      siblings.emplace_back(leaf_of(spec.key));
    else if (spec.state == State::no_effect && parent_of(parent_of(spec.key)).size() > 0)
      continue;  // a word deep in a section without effect is not what was meant
    else if (edit_distance(leaf_of(spec.key), leaf) == 0 && spec.key != parent)
      elsewhere.emplace_back(spec.key);
  }
  // The same word in another section is likelier a misplaced key than a misspelt one; `enabled` and
  // the like stand in many sections and say nothing.
  if (elsewhere.size() == 1) return fmt::format(" (did you mean {}?)", elsewhere[0]);
  const std::string near = nearest(leaf, siblings);
  if (near.empty()) return "";
  return fmt::format(" (did you mean {}{}{}?)", parent, parent.empty() ? "" : ".", near);
}

bool one_of(std::string_view list, std::string_view word) {
  while (true) {
    const size_t bar = list.find('|');
    if (list.substr(0, bar) == word) return true;
    if (bar == std::string_view::npos) return false;
    list.remove_prefix(bar + 1);
  }
}

std::vector<std::string> split_words(std::string_view list) {
  std::vector<std::string> words;
  while (true) {
    const size_t bar = list.find('|');
    words.emplace_back(list.substr(0, bar));
    if (bar == std::string_view::npos) return words;
    list.remove_prefix(bar + 1);
  }
}

}  // namespace dstrain
