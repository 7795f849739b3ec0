#include "runtime/config/way_on/way_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/keys/table/facts.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/solve/solve.h"
#include "runtime/config/text.h"
#include "runtime/config/way_on/answers.h"

namespace dstrain {
namespace {

constexpr int kMostRounds = 12;  // an answer may lead to another error: "missing", for example
constexpr size_t kMostVerdicts = 200;  // a hostile file has many keys, and each option searches all

using Answers = std::map<std::string, Answer>;  // by the key of the verdict

bool stops(const Verdict& v) {
  return is_error(v.state) && !v.echo;
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

ConfigRequest with(ConfigRequest request, const Answers& answers) {
  for (const auto& [key, answer] : answers) {
    request.ignored.insert(request.ignored.end(), answer.ignores.begin(), answer.ignores.end());
    request.sets.insert(request.sets.end(), answer.sets.begin(), answer.sets.end());
  }
  return request;
}

// Returns whether another answer gives a key of `answer` another value: two names of one key in the file.
bool contradicts(const Answer& answer, const Answers& others, const std::string& key) {
  return std::ranges::any_of(answer.sets, [&](const std::string& set) {
    const std::string begin = set.substr(0, set.find('=') + 1);
    return std::ranges::any_of(others, [&](const auto& other) {
      return other.first != key &&
             std::ranges::any_of(other.second.sets, [&](const std::string& theirs) {
               return theirs.starts_with(begin) && theirs != set;
             });
    });
  });
}

// Returns the answers to all verdicts that have one, and writes the keys without one to `left`.
Answers find_answers(const ConfigRequest& request, std::vector<std::string>& left) {
  Answers answers;
  const Node own = merge(request).root;
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
      Answer answer = tried == answers.end() ? first_answer(v, {merged, facts, own})
                                             : next_answer(v, tried->second);
      if (answer == Answer{} || contradicts(answer, answers, v.key)) {
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

// Returns --ignore with the keys.
std::string ignore_option(const std::vector<std::string>& keys) {
  return "--ignore " + shell_quoted(fmt::format("{}", fmt::join(keys, ",")));
}

// Returns --ignore with all keys, and the settings, without those for keys inside a section that is ignored as a whole.
std::string options_text(const Answers& answers, const std::vector<Verdict>& order) {
  std::vector<std::string> all_ignored, ignored, sets;
  for (const auto& [key, answer] : answers)
    all_ignored.insert(all_ignored.end(), answer.ignores.begin(), answer.ignores.end());
  const auto inside_another = [&](const std::string& key) {
    return std::ranges::any_of(
        all_ignored, [&](const std::string& other) { return key.starts_with(other + "."); });
  };
  const auto once = [](std::vector<std::string>& list, const std::string& word) {
    if (std::ranges::find(list, word) == list.end()) list.push_back(word);
  };
  const auto add = [&](const Answer& answer) {
    for (const std::string& key : answer.ignores)
      if (!inside_another(key)) once(ignored, key);
    for (const std::string& set : answer.sets)
      if (!inside_another(set.substr(0, set.find('=')))) once(sets, "--set " + set_text(set));
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
  const std::string keys = ignored.empty() ? "" : ignore_option(ignored);
  return fmt::format("{}{}{}", keys, keys.empty() || sets.empty() ? "" : " ", fmt::join(sets, " "));
}

// Returns what DeepSpeed does with an unknown key.
std::string_view habit(const Verdict& v, std::string_view optimizer) {
  if (v.key.starts_with("dstrain")) return "";
  return deepspeed_refuses(v, optimizer) ? "DeepSpeed refuses it too; " : "DeepSpeed ignores it; ";
}

std::string answer_text(const Verdict& v, const Answer& answer, std::string_view optimizer) {
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

// Returns the line about keys that DeepSpeed ignores, or refuses, and that mean nothing here either; empty: there are not
// several.
std::string without_effect(const ConfigRequest& request, const std::vector<Verdict>& verdicts,
                           const Answers& answers) {
  std::vector<std::string> keys;
  for (const Verdict& v : verdicts) {
    const auto it = answers.find(v.key);
    if (!stops(v) || v.state != State::unknown || it == answers.end() || !it->second.sets.empty() ||
        v.key.starts_with("dstrain.") || std::ranges::find(keys, v.key) != keys.end())
      continue;
    keys.push_back(v.key);
  }
  if (keys.size() < 2) return "";
  return fmt::format("{} keys mean nothing to DeepSpeed, and nothing here; without them: {} {}",
                     keys.size(), request.command.empty() ? "dstrain ..." : request.command,
                     ignore_option(keys));
}

}  // namespace

void find_way_on(const ConfigRequest& request, LoadedConfig& loaded) {
  if (std::ranges::count_if(loaded.verdicts, stops) > static_cast<int64_t>(kMostVerdicts)) return;
  std::vector<std::string> left;
  const Answers answers = find_answers(request, left);
  if (answers.empty()) return;
  const std::string_view optimizer = loaded.job.optimizer.kind == OptimizerKind::muon ? "muon" : "";
  for (Verdict& v : loaded.verdicts)
    if (const auto it = answers.find(v.key); stops(v) && it != answers.end())
      v.way_on = answer_text(v, it->second, optimizer);
  const std::string options = options_text(answers, loaded.verdicts);
  loaded.way_on = left.empty() ? fmt::format("it trains with {}", options)
                               : fmt::format("what is left to mend with {}: {}", options,
                                             fmt::join(left, ", "));
  loaded.without_effect = without_effect(request, loaded.verdicts, answers);
}

}  // namespace dstrain
