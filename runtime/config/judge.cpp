#include "runtime/config/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kUnknown = "unknown key";
constexpr size_t kLongestPath = 200;
constexpr int kMostSuggestions =
    100;  // the search for similar names is slow; a hostile file has many keys

// Returns the dotted path of a key, of bounded length even for a hostile file.
std::string join(const std::string& path, const std::string& key) {
  if (path.size() > kLongestPath) return path;
  return (path.empty() ? "" : path + ".") + printable(key);
}

// Returns whether the key's own name has a dot. Its path may be that of a key of the table, but nothing reads it.
bool has_dot(const Member& m) {
  return m.key.find('.') != std::string::npos;
}

// Returns whether a field of config.json is transformers.js's: their names alone have a dot ("transformers.js_config").
bool is_of_javascript(const std::string& path, const Member& m) {
  return path == kModelSectionName && m.key.starts_with("transformers.");
}

// Returns whether no key of the section changes a result of a run: unknown ones are warnings there.
bool changes_no_result(const std::string& section) {
  return one_of("tensorboard|wandb|csv_monitor|comet|comms_logger|flops_profiler|timers|autotuning",
                section);
}

// Returns whether unknown keys of the section are warnings unless they may be misspelt: its own keys say how a run divides
// and saves, and DeepSpeed ignores others.
bool takes_any_key(const std::string& section) {
  return one_of("checkpoint|activation_checkpointing|hybrid_engine", section);
}

// Returns the order of verdicts: a section goes by the one with the largest weight among its keys.
int weight(const Verdict& v) {
  if (is_error(v.state)) return v.echo ? 2 : 3;
  return v.state == State::honoured ? 1 : 0;
}

class Walk {
 public:
  Walk(const Merged& merged, const Facts& facts)
      : merged_(merged), facts_(facts), names_(merged.names) {}

  std::vector<Verdict> run() {
    members(merged_.root, "");
    return std::move(verdicts_);
  }

 private:
  size_t add(const std::string& key, const Member& member, Judgement judgement) {
    Verdict v;
    v.key = key;
    if (member.place.source == Source::file) {
      v.line = member.place.line;
      v.column = member.place.column;
    }
    v.state = judgement.state;
    v.message = std::move(judgement.message);
    v.where = where(names_, member.place, key);
    v.echo = judgement.follows;
    v.warns = judgement.warns;
    if (member.first.line > 0 && !merged_.ignored.contains(key)) {
      v.state = State::error;
      v.message = fmt::format("is given twice, first at line {}, column {}: keep one",
                              member.first.line, member.first.column);
      v.echo = false;
    }
    verdicts_.push_back(std::move(v));
    return verdicts_.size() - 1;
  }

  void members(const Node& node, const std::string& path) {
    for (const Member& m : node.members) {
      const std::string key = join(path, m.key);
      const KeySpec* spec = has_dot(m) ? nullptr : find_key(facts_, key);
      if (const auto by = merged_.ignored.find(key); by != merged_.ignored.end())
        whole(key, m,
              {State::no_effect, fmt::format("ignored, as {} says", by->second.by), false, true});
      else if (!spec && is_comment(m.key))
        whole(key, m, {State::no_effect, "a comment"});
      else if (!spec && is_of_javascript(path, m))
        whole(key, m, {State::no_effect, "transformers.js's"});
      else if (!spec)
        unknown(key, m, path);
      else if (spec->type == Type::section && m.value.is(Node::Kind::object))
        section(key, m, *spec);
      else
        leaf(key, m, *spec);
    }
  }

  size_t whole(const std::string& key, const Member& m, const Judgement& judgement) {
    const size_t at = add(key, m, judgement);
    inside(key, m.value, judgement);
    return at;
  }

  // Returns whether the file has `key` and does not ignore it.
  bool gives(std::string_view key) const {
    return find(merged_.root, key) && !merged_.ignored.contains(std::string(key));
  }

  // Gives every member below `key` the verdict of `key`, which is judged as a whole.
  void inside(const std::string& key, const Node& node, const Judgement& judgement) {
    for (const Member& m : node.members) {
      const std::string child = join(key, m.key);
      add(child, m, {judgement.state, "inside " + printable(key), true});
      inside(child, m.value, judgement);
    }
  }

  // Returns whether the configuration has a wrong value of the key.
  bool is_wrong(std::string_view key) const {
    const Member* const member = find(*facts_.root, key);
    const KeySpec* const spec = member ? find_key(facts_, key) : nullptr;
    return spec && is_error(judged(std::string(key), *member, *spec).state);
  }

  // Returns how to write the key at the path `key` whose own name has dots, or nothing if no section is there.
  std::string nested(const std::string& key, const std::string& name) const {
    const KeySpec* section = find_key(facts_, key.substr(0, key.rfind('.')));
    if (!section || section->type != Type::section || name.ends_with('.')) return "";
    std::string text, closing;
    for (const char c : printable(name)) {
      if (c != '.') {
        text += c;
      } else {
        text += "\": {\"";
        closing += '}';
      }
    }
    return fmt::format(" (a dot in a name does not nest: write \"{}\": ...{})", text, closing);
  }

  // Returns the key of the type that says which keys are in the section at `path`, if its value is wrong; else nothing.
  std::string_view wrong_type(std::string_view path) const {
    constexpr std::string_view optimizer = "optimizer.params", scheduler = "scheduler.params";
    if (path == optimizer && is_wrong("optimizer.type")) return "optimizer.type";
    if (path == scheduler && is_wrong("scheduler.type")) return "scheduler.type";
    if (!fmt::format("{}.", path).starts_with(kModelSection)) return {};
    if (is_wrong(kModelType)) return kModelType;
    return is_wrong(kHuggingFaceType) ? kHuggingFaceType : std::string_view{};
  }

  void unknown(const std::string& key, const Member& m, const std::string& path) {
    const size_t at = whole(key, m, judged_unknown(key, m, path));
    verdicts_[at].dotted = has_dot(m);
    if (has_dot(m)) verdicts_[at].section = path;
  }

  // Returns the verdict on a field of config.json that no key is, and that says nothing to transformers either: a member of
  // one of its sections, or null. An option that sets it is misspelt.
  std::optional<Judgement> judged_unread(const Member& m, const std::string& path) const {
    if (!facts_.family || !facts_.family->hugging_face || m.place.source == Source::set)
      return std::nullopt;
    if (path == kModelSectionName && m.value.is(Node::Kind::null))
      return Judgement{State::no_effect, "unset"};
    const KeySpec* const section =
        path.starts_with(kModelSection) ? find_key(facts_, path) : nullptr;
    if (!section || section->type != Type::section) return std::nullopt;
    return Judgement{State::no_effect, "transformers leaves it out", false, true};
  }

  Judgement judged_unknown(const std::string& key, const Member& m, const std::string& path) {
    if (auto unread = judged_unread(m, path)) return std::move(*unread);
    std::string other;
    Judgement judgement{State::unknown, std::string(kUnknown)};
    if (has_dot(m))
      judgement.message += nested(key, m.key);
    else
      find_key(facts_, key, &other);
    if (const std::string_view type = wrong_type(path); !type.empty())
      return {State::error, fmt::format("see {}", type), true};
    if (!other.empty()) {
      const std::string family = key.substr(0, key.find('.'));
      const std::string selected = family == "optimizer"   ? facts_.optimizer
                                   : family == "scheduler" ? facts_.scheduler
                                                           : facts_.model;
      const std::string type_key = (family == "dstrain" ? "dstrain.model" : family) + ".type";
      const Member* type = find(*facts_.root, type_key);
      const bool auto_type = selected.empty() && type && type->value.is_auto();
      if (auto_type && m.value.is_auto()) return {State::no_effect, "unset"};
      judgement = {
          State::error,
          auto_type ? fmt::format("belongs to {}, and {}.type is \"auto\": name the schedule",
                                  fmt::join(split_words(other), ", "), family)
                    : fmt::format(
                          "belongs to {}, not to {}", fmt::join(split_words(other), ", "),
                          selected.empty() ? "this section without a type" : printable(selected))};
    } else if (judgement.message == kUnknown && ++suggestions_ <= kMostSuggestions) {
      judgement.message += hint_on(facts_, key, m.value).text;
    }
    const std::string section = path.substr(0, path.find('.'));
    if (judgement.state == State::unknown &&
        (changes_no_result(key.substr(0, key.find('.'))) ||
         (judgement.message == kUnknown && takes_any_key(section)))) {
      judgement.state = State::no_effect;
      judgement.warns = true;
    }
    return judgement;
  }

  void section(const std::string& key, const Member& m, const KeySpec& spec) {
    Judgement own{spec.state, spec.state == State::honoured ? "" : std::string(spec.note), true};
    if (spec.rule) own = spec.rule->judge(facts_, spec, m.value);
    if (!spec.alias.empty()) own.message = fmt::format("another name of {}", spec.alias);
    const bool twice = !spec.alias.empty() && gives(spec.alias);
    if (twice) own = {State::error, fmt::format("is given together with {}: keep one", spec.alias)};
    const size_t at = add(key, m, own);
    members(m.value, key);
    const Verdict* worst = nullptr;
    for (size_t i = at + 1; i < verdicts_.size(); ++i)
      if (!worst || weight(verdicts_[i]) > weight(*worst)) worst = &verdicts_[i];
    Verdict& v = verdicts_[at];
    if (!worst || (is_error(v.state) && !v.echo)) return;
    if (is_error(worst->state)) {
      // What stops a run is in the section, which is no second error.
      v.state = State::honoured;
      v.message = "see " + worst->key;
      v.echo = true;
    } else if (worst->state == State::no_effect && v.state == State::honoured) {
      v.state = State::no_effect;
    }
  }

  void leaf(const std::string& key, const Member& m, const KeySpec& spec) {
    const bool no_model = key == kModelSectionName && !merged_.model_error.empty();
    const Judgement judgement =
        no_model ? Judgement{State::error, merged_.model_error} : judged(key, m, spec);
    add(key, m, judgement);
    if (holds_keys(spec)) inside(key, m.value, judgement);
  }

  static bool holds_keys(const KeySpec& spec) {
    return spec.type == Type::section || spec.type == Type::opaque || spec.type == Type::any;
  }

  // Returns the verdict on a key by its own value.
  Judgement judged(const std::string& key, const Member& m, const KeySpec& spec) const {
    const bool automatic = m.value.is_auto() && !holds_keys(spec) && !one_of(spec.choices, "auto");
    const KeySpec& target = spec.rule ? spec : target_of(facts_, spec);
    if (key == "zero_optimization" && m.value.is(Node::Kind::boolean))
      return {State::honoured,
              fmt::format("an old form of \"stage\": {}", m.value.boolean ? 1 : 0)};
    if (const std::string wrong = automatic ? "" : type_error(target, m.value); !wrong.empty())
      return {State::error, wrong};
    if (!spec.alias.empty() && gives(spec.alias))
      return {State::error,
              fmt::format("is given together with {}, its other name: keep one", spec.alias)};
    Judgement judgement = legal(target, m.value, automatic);
    // In a file of transformers "model_type" is the name that everybody knows.
    if (!spec.alias.empty() && key != kHuggingFaceType)
      judgement.message = fmt::format("another name of {}{}{}", spec.alias,
                                      judgement.message.empty() ? "" : "; ", judgement.message);
    return judgement;
  }

  // Returns whether a model's family gives the null of a key a meaning that is not the default's.
  bool means_a_value(std::string_view key) const {
    const Member* const read = find(*facts_.root, key);
    return key.starts_with(kModelSection) && read && !read->value.is(Node::Kind::null);
  }

  Judgement legal(const KeySpec& spec, const Node& value, bool automatic) const {
    if (value.is(Node::Kind::null) && (spec.rule || !means_a_value(spec.key)))
      return {State::no_effect, "unset"};
    if (!spec.rule)
      return {spec.state, spec.state == State::honoured ? "" : std::string(spec.note)};
    if (!automatic) return spec.rule->judge(facts_, spec, in_table_case(spec, value));
    if (spec.fallback.empty()) return {State::no_effect, "unset"};
    return spec.rule->judge(
        facts_, spec,
        read_value(spec.automatic.empty() ? spec.fallback : spec.automatic, Source::file));
  }

  const Merged& merged_;
  const Facts& facts_;
  const SourceNames& names_;
  std::vector<Verdict> verdicts_;
  int suggestions_ = 0;
};

}  // namespace

std::vector<Verdict> judge(const Merged& merged, const Facts& facts) {
  return Walk(merged, facts).run();
}

}  // namespace dstrain
