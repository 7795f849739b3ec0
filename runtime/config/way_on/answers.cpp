#include "runtime/config/way_on/answers.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/numbers.h"
#include "runtime/config/keys/table/optimizer_types.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// How ranks are divided.
constexpr std::string_view kLayout =
    "pipeline.stages|tensor_parallel.autotp_size|sequence_parallel_size";
constexpr std::string_view kTotalSteps = "scheduler.params.total_num_steps";
constexpr std::string_view kOptimizerType = "optimizer.type", kClipping = "gradient_clipping",
                           kAdamMode = "optimizer.params.adam_w_mode";

std::string section_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

// A comma separates keys on the command line.
Answer ignoring(std::string key) {
  if (key.find(',') != std::string::npos) return {};
  return {{std::move(key)}, {}};
}

Answer ignoring_if_idle(const std::string& key) {
  return changes_no_number(key) ? ignoring(key) : Answer{};
}

Answer setting(std::string_view key, std::string_view value) {
  return {{}, {std::string(key) + "=" + std::string(value)}};
}

// Removes the earlier ones of members with the same name, at every depth.
void keep_last(Node& node) {
  std::set<std::string> seen;
  std::vector<Member> kept;
  std::ranges::reverse(node.members);
  for (Member& m : node.members) {
    if (!seen.insert(m.key).second) continue;
    keep_last(m.value);
    kept.push_back(std::move(m));
  }
  std::ranges::reverse(kept);
  node.members = std::move(kept);
}

// Returns the answer to a key that the file has twice: its last value.
Answer answer_repeated(const std::string& key, Node value) {
  constexpr size_t longest = 1000;  // a command line is to be read
  // The model may have come from another file.
  if (key == "dstrain" || key == kModelSectionName) return {};
  keep_last(value);
  const std::string text = json_text(value);
  return text.size() > longest ? Answer{} : setting(key, text);
}

// Returns `value` without quotes, as JSON text, if the key is honoured with it or goes without an effect; else nothing.
std::string fitting(const KeySpec& spec, const Node& value, const Facts& facts) {
  const KeySpec& target = target_of(facts, spec);
  const std::optional<Node> plain = unquoted(target, value);
  if (!plain) return "";
  const State state = target.rule ? target.rule->judge(facts, target, *plain).state : target.state;
  if (is_error(state)) return "";
  return plain->text.empty() ? json_text(*plain) : plain->text;
}

// Returns the choice of `spec` that the text names but for case and hyphens; empty: none.
std::string same_choice(const KeySpec& spec, const std::string& text) {
  for (const std::string& choice : split_words(spec.choices))
    if (choice != text && same_letters(choice, text)) return choice;
  return "";
}

// Returns the settings with which the optimizer computes what the class that the file names does; empty: none does.
Answer answer_optimizer(const std::string& name, const Node& root) {
  const std::string_view type = type_of_class(name);
  if (type.empty()) return {};
  const Member* mode = find(root, kAdamMode);
  if (!mode) mode = find(root, "optimizer.params.adamw_mode");
  if (type != "AdamW" || !mode || to_boolean(mode->value).value_or(true))
    return setting(kOptimizerType, type);
  Answer answer = setting(kOptimizerType, "Adam");
  answer.sets.push_back(std::string(kAdamMode) + "=false");
  return answer;
}

// Returns the answer to max_grad_norm among the optimizer's arguments: what it asks for has another place.
Answer answer_max_grad_norm(const Verdict& v, const Node& value, const Node& root) {
  const Member* const clipping = find(root, kClipping);
  if (!to_real(value)) return {};
  Answer answer = ignoring(v.key);
  if (clipping && to_real(clipping->value) == to_real(value)) return answer;
  if (clipping && !clipping->value.is_auto()) return {};
  answer.sets.push_back(std::string(kClipping) + "=" + json_text(value));
  return answer;
}

// Returns the answer to a wrong value that is written at `member`.
Answer answer_value(const Verdict& v, const Member& member, const KeySpec& spec,
                    const Asked& asked) {
  if (member.first.line > 0) return answer_repeated(v.key, member.value);
  const Node& value = member.value;
  if (const std::string text = fitting(spec, value, asked.facts); !text.empty())
    return setting(v.key, text);
  // Another architecture is no way on: a model's type is never set.
  if (value.is(Node::Kind::string) && !v.key.starts_with(kModelSection))
    if (const std::string choice = same_choice(spec, value.text); !choice.empty())
      return setting(v.key, choice);
  // Schedules count a warm-up of 1 step, and DeepSpeed's one of 0 too, as one of 2.
  if (v.key == "scheduler.params.warmup_num_steps" && to_real(value) == 0)
    return setting(v.key, "1");
  if (v.key == kOptimizerType) return answer_optimizer(value.text, asked.merged.root);
  if (v.key == "optimizer.params.max_grad_norm")
    return answer_max_grad_norm(v, value, asked.merged.root);
  // Hugging Face's arguments "bf16": true and "fp16": true.
  if (one_of("bf16|fp16", v.key) && value.is(Node::Kind::boolean))
    return setting(v.key, value.boolean ? R"({"enabled": true})" : R"({"enabled": false})");
  return ignoring_if_idle(v.key);
}

// Returns the answer to an unknown key with this value.
Answer answer_unknown(const Verdict& v, const Node& value, const Asked& asked) {
  const Hint hint = hint_on(asked.facts, v.key, value);
  const bool ours = v.key.starts_with("dstrain.");
  // A model's key outside its section says nothing without a model.
  const bool of_model = hint.key.starts_with(kModelSection) && !v.key.starts_with(kModelSection);
  const Node& root = asked.own;
  const Member* const given = find(root, of_model ? kModelSectionName : std::string_view(hint.key));
  const bool decided = !hint.key.empty() && given && !asked.merged.ignored.contains(hint.key);
  // DeepSpeed goes by the other key, too. Two names of one value in our own section contradict each other.
  if (decided && (!ours || json_text(given->value) == json_text(value))) return ignoring(v.key);
  // DeepSpeed ignores such a key, and a run may have too few ranks for it.
  const bool divides = one_of(kLayout, hint.key);
  if (!decided && !of_model && !divides && !hint.value.empty()) {
    Answer answer = ignoring(v.key);
    if (answer.ignores.empty()) return answer;
    // Without a section there is AdamW; with one its type must be named.
    if (hint.key.starts_with("optimizer.params.") && !find(root, "optimizer"))
      answer.sets.push_back(std::string(kOptimizerType) + "=AdamW");
    answer.sets.push_back(hint.key + "=" + hint.value);
    return answer;
  }
  if (ours || !hint.idle) return {};
  // An argument that DeepSpeed refuses may be a number that is meant for another optimizer or schedule.
  if (v.key.find(".params.") != std::string::npos && deepspeed_refuses(v, asked.facts.optimizer))
    return {};
  return ignoring(v.key);
}

// A key with a dot in its own name can be ignored; an option for its value would mean another key.
Answer answer_dotted(const Verdict& v, const Asked& asked) {
  return find_key(asked.facts, v.key) ? ignoring_if_idle(v.key) : ignoring(v.key);
}

}  // namespace

const Member* find_last(const Node& root, std::string_view path) {
  const size_t dot = path.find('.');
  const Member* last = nullptr;
  for (const Member& m : root.members)
    if (m.key == path.substr(0, dot)) last = &m;
  if (!last || dot == std::string_view::npos) return last;
  return find_last(last->value, path.substr(dot + 1));
}

Answer first_answer(const Verdict& v, const Asked& asked) {
  if (v.key.empty()) return {};
  if (!v.settings.empty()) return {{}, v.settings};
  if (v.dotted) return answer_dotted(v, asked);
  const Member* member = find_last(asked.merged.root, v.key);
  const KeySpec* const spec = find_key(asked.facts, v.key);
  const bool in_file =
      member ? member->place.source == Source::file || member->place.source == Source::model_file
             : v.line > 0 && v.state == State::unknown;
  if (member && member->place.source == Source::model_file) {
    // Without a field of config.json, or with its type ignored, it would be another model than the one that has the
    // weights. transformers leaves out fields that it does not know.
    if (v.state == State::unknown) return ignoring(v.key);
    if (member->first.line > 0) return answer_repeated(v.key, member->value);
    const bool wrong = v.state == State::error && spec;
    const std::string text = wrong ? fitting(*spec, member->value, asked.facts) : "";
    return text.empty() ? Answer{} : setting(v.key, text);
  }
  if (in_file)
    return spec ? answer_value(v, *member, *spec, asked)
                : answer_unknown(v, member ? member->value : Node{}, asked);
  if (v.key == kTotalSteps && !member && spec) return setting(v.key, "auto");
  // A key that is missing: a section that numbers do not depend on goes on without itself.
  return member || v.key.starts_with("dstrain.") || section_of(v.key).empty()
             ? Answer{}
             : ignoring_if_idle(section_of(v.key));
}

Answer next_answer(const Verdict& v, const Answer& tried) {
  if (tried.ignores.empty() && v.settings.empty() && tried.sets.front().starts_with(v.key + "="))
    return ignoring_if_idle(v.key);
  const std::string above = section_of(tried.ignores.empty() ? v.key : tried.ignores.front());
  return above.empty() || above.starts_with("dstrain") ? Answer{} : ignoring_if_idle(above);
}

bool deepspeed_refuses(const Verdict& v, std::string_view optimizer) {
  const std::string section = v.dotted ? v.section : section_of(v.key);
  // Muon takes any argument.
  const bool argument = ((section + ".").starts_with("optimizer.params.") && optimizer != "muon") ||
                        (section + ".").starts_with("scheduler.params.");
  return argument || (!section.empty() && takes_quoted(section));
}

}  // namespace dstrain
