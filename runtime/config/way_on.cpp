#include "runtime/config/way_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/model/family.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/solve/solve.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr int kMostRounds = 12;  // an answer may lead to another error: "missing", for example
constexpr std::string_view kTotalSteps = "scheduler.params.total_num_steps";
constexpr size_t kMostVerdicts = 200;  // a hostile file has many keys, and each option searches all

// The options that answer a verdict: keys that are ignored, and settings.
struct Answer {
  std::vector<std::string> ignores, sets;  // KEY; KEY=VALUE
  bool operator==(const Answer&) const = default;
};
using Answers = std::map<std::string, Answer>;  // by the key of the verdict

std::string section_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

Answer ignoring(std::string key) {
  return {{std::move(key)}, {}};
}

Answer setting(const std::string& key, const std::string& value) {
  return {{}, {key + "=" + value}};
}

bool stops(const Verdict& v) {
  return is_error(v.state) && !v.echo;
}

// A configuration whose verdicts are answered.
struct Asked {
  const Merged& merged;
  const Facts& facts;
};

// Returns the member at the dotted path, of several of a name the last one; null: none.
const Member* find_last(const Node& root, std::string_view path) {
  const size_t dot = path.find('.');
  const Member* last = nullptr;
  for (const Member& m : root.members)
    if (m.key == path.substr(0, dot)) last = &m;
  if (!last || dot == std::string_view::npos) return last;
  return find_last(last->value, path.substr(dot + 1));
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

// Returns the answer to a wrong value that is written at `member`.
Answer answer_value(const Verdict& v, const Member& member, const Asked& asked) {
  if (member.first.line > 0) return answer_repeated(v.key, member.value);
  const Node& value = member.value;
  const KeySpec* spec = find_key(asked.facts, v.key);
  if (spec)
    if (const std::string text = fitting(*spec, value, asked.facts); !text.empty())
      return setting(v.key, text);
  if (spec && value.is(Node::Kind::string) && !spec->choices.empty())
    if (const std::string near = nearest(value.text, split_words(spec->choices));
        !near.empty() && near != value.text &&
        (spec->type == Type::string || near != lower_case(value.text)))
      return setting(v.key, near);
  if (spec && v.key == kTotalSteps) return setting(v.key, "auto");
  // Schedules count a warm-up of 1 step, and DeepSpeed's one of 0 too, as one of 2.
  if (spec && v.key == "scheduler.params.warmup_num_steps" && to_real(value) == 0)
    return setting(v.key, "1");
  if (v.key == "optimizer.type")
    return v.state == State::refused ? setting(v.key, "AdamW") : ignoring("optimizer");
  if (v.key == "scheduler.type") return ignoring("scheduler");
  Answer answer = ignoring(v.key);
  // What max_grad_norm asks for has another place.
  if (v.key == "optimizer.params.max_grad_norm" && to_real(value).value_or(-1) >= 0 &&
      !find(asked.merged.root, "gradient_clipping"))
    answer.sets.push_back("gradient_clipping=" + json_text(value));
  return answer;
}

// Returns the answer to `v` that is tried first; empty: none.
Answer first_answer(const Verdict& v, const Asked& asked) {
  if (v.key.empty()) return {};
  if (!v.settings.empty()) return {{}, v.settings};
  // A key with a dot in its own name can be ignored; an option for its value would mean another key.
  if (v.dotted) return ignoring(v.key);
  const Member* member = find_last(asked.merged.root, v.key);
  const bool in_file =
      member ? member->place.source == Source::file || member->place.source == Source::model_file
             : v.line > 0 && v.state == State::unknown;
  // Without a field of config.json, or with its type ignored, it would be another model than the one that has the weights.
  if (member && member->place.source == Source::model_file &&
      (v.state == State::refused || v.state == State::not_yet || v.key == kHuggingFaceType))
    return {};
  if (in_file) return member ? answer_value(v, *member, asked) : ignoring(v.key);
  if (v.key == kTotalSteps && find_key(asked.facts, v.key)) return setting(v.key, "auto");
  // A key that is missing: the section goes on without itself.
  return member || v.key.starts_with("dstrain.") || section_of(v.key).empty()
             ? Answer{}
             : ignoring(section_of(v.key));
}

// Returns whether the verdict is on a member that a later one of the same name, or in a section of the same name, is to
// replace.
bool is_replaced(const Verdict& v, const Node& root) {
  const Member* const last = v.dotted ? nullptr : find_last(root, v.key);
  if (v.line == 0 || (last && last->place.source != Source::file)) return false;
  if (last) return last->place.line != v.line || last->place.column != v.column;
  // The later section does not have the key.
  return !v.dotted && find(root, v.key) != nullptr;
}

// Returns the answer to `v` after `tried` has not helped; empty: none.
Answer next_answer(const Verdict& v, const Answer& tried) {
  if (tried.ignores.empty() && v.settings.empty() && tried.sets.front().starts_with(v.key + "="))
    return ignoring(v.key);
  const std::string above = section_of(tried.ignores.empty() ? v.key : tried.ignores.front());
  return above.empty() || above.starts_with("dstrain") ? Answer{} : ignoring(above);
}

ConfigRequest with(ConfigRequest request, const Answers& answers) {
  for (const auto& [key, answer] : answers) {
    request.ignored.insert(request.ignored.end(), answer.ignores.begin(), answer.ignores.end());
    request.sets.insert(request.sets.end(), answer.sets.begin(), answer.sets.end());
  }
  return request;
}

// Returns the answers to all verdicts that have one, and writes the keys without one to `left`.
Answers find_answers(const ConfigRequest& request, std::vector<std::string>& left) {
  Answers answers;
  for (int round = 0; round < kMostRounds; ++round) {
    const ConfigRequest asked = with(request, answers);
    const Merged merged = merge(asked);
    const LoadedConfig loaded = solve(merged, asked);
    const Node root = canonical(merged);
    const Facts facts = find_facts(root, *request.models);
    left.clear();
    std::set<std::string> changed;
    for (const Verdict& v : loaded.verdicts) {
      if (!stops(v) || changed.contains(v.key) || is_replaced(v, merged.root)) continue;
      // To ignore it would be to ignore the key of that path too.
      if (v.dotted && find(merged.root, v.key)) {
        left.push_back(v.key);
        continue;
      }
      const auto tried = answers.find(v.key);
      Answer answer =
          tried == answers.end() ? first_answer(v, {merged, facts}) : next_answer(v, tried->second);
      if (answer == Answer{}) {
        left.push_back(v.key.empty() ? "the file" : v.key);
      } else {
        answers[v.key] = std::move(answer);
        changed.insert(v.key);
      }
    }
    if (changed.empty()) break;
  }
  for (const std::string& key : left) answers.erase(key);
  return answers;
}

// Returns KEY=VALUE as a word for a shell, which takes the first '=' as it is behind an option.
std::string set_text(const std::string& set) {
  std::string letters = set;
  letters.erase(letters.find('='), 1);
  return safe_without_quotes(letters) ? set : shell_quoted(set);
}

// Returns all options, without those for keys inside a section that is ignored as a whole.
std::string options_text(const Answers& answers, const std::vector<Verdict>& order) {
  std::vector<std::string> ignores, options;
  for (const auto& [key, answer] : answers)
    ignores.insert(ignores.end(), answer.ignores.begin(), answer.ignores.end());
  const auto inside_another = [&](const std::string& key) {
    return std::ranges::any_of(
        ignores, [&](const std::string& other) { return key.starts_with(other + "."); });
  };
  const auto add = [&](const Answer& answer) {
    const auto once = [&](const std::string& option) {
      if (std::ranges::find(options, option) == options.end()) options.push_back(option);
    };
    for (const std::string& key : answer.ignores)
      if (!inside_another(key)) once("--ignore " + shell_quoted(key));
    for (const std::string& set : answer.sets)
      if (!inside_another(set.substr(0, set.find('=')))) once("--set " + set_text(set));
  };
  // A section that is set as a whole comes before what is set in it.
  const auto add_at = [&](const std::string& key) {
    if (const auto it = answers.find(key); it != answers.end()) add(it->second);
  };
  for (const Verdict& v : order) {
    for (size_t dot = v.key.find('.'); dot != std::string::npos; dot = v.key.find('.', dot + 1))
      add_at(v.key.substr(0, dot));
    add_at(v.key);
  }
  for (const auto& [key, answer] : answers) add(answer);
  return fmt::format("{}", fmt::join(options, " "));
}

// Returns what DeepSpeed does with an unknown key. Muon takes any argument.
std::string_view habit(const Verdict& v, OptimizerKind optimizer) {
  if (v.key.starts_with("dstrain")) return "";
  const std::string section = v.dotted ? v.section : section_of(v.key);
  const bool argument =
      ((section + ".").starts_with("optimizer.params.") && optimizer != OptimizerKind::muon) ||
      (section + ".").starts_with("scheduler.params.");
  const bool strict = !section.empty() && takes_quoted(section);
  return argument || strict ? "DeepSpeed refuses it too; " : "DeepSpeed ignores it; ";
}

std::string answer_text(const Verdict& v, const Answer& answer, OptimizerKind optimizer) {
  const std::string options = options_text({{v.key, answer}}, {});
  const std::string_view before = v.state == State::unknown ? habit(v, optimizer) : "";
  std::string_view after = "goes on";
  const auto sets_batch = [](const std::string& set) {
    return set.starts_with("train_batch_size=");
  };
  if (v.key == "train_batch_size" && !v.settings.empty() &&
      std::ranges::none_of(answer.sets, sets_batch))
    after = "goes on with the same batch";
  if (answer.sets.empty())
    after = answer.ignores.front() == v.key ? "goes on without it" : "goes on without the section";
  return fmt::format("{}`{}` {}", before, options, after);
}

}  // namespace

void find_way_on(const ConfigRequest& request, LoadedConfig& loaded) {
  if (std::ranges::count_if(loaded.verdicts, stops) > static_cast<int64_t>(kMostVerdicts)) return;
  std::vector<std::string> left;
  const Answers answers = find_answers(request, left);
  if (answers.empty()) return;
  for (Verdict& v : loaded.verdicts)
    if (const auto it = answers.find(v.key); stops(v) && it != answers.end())
      v.way_on = answer_text(v, it->second, loaded.job.optimizer.kind);
  const std::string options = options_text(answers, loaded.verdicts);
  loaded.way_on = left.empty() ? fmt::format("it trains with {}", options)
                               : fmt::format("what is left to mend with {}: {}", options,
                                             fmt::join(left, ", "));
}

}  // namespace dstrain
