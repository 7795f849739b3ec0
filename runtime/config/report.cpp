#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/config/coerce.h"
#include "runtime/config/key_table.h"
#include "runtime/config/load.h"
#include "runtime/config/tree.h"

namespace dstrain {

std::string_view name_of(State state) {
  constexpr std::string_view names[] = {"honoured", "no_effect", "refused",
                                        "not_yet",  "unknown",   "error"};
  return names[static_cast<int>(state)];
}

std::string check_text(const std::vector<Verdict>& verdicts) {
  std::string text;
  std::map<State, int> counts;
  for (const Verdict& v : verdicts) {
    ++counts[v.state];
    // The message on an unknown key begins with that word itself.
    const std::string_view state = v.state == State::unknown && !v.echo ? "" : name_of(v.state);
    text += fmt::format("{}: {}{}{}{}{}\n", v.where, v.key, v.key.empty() ? "" : ": ", state,
                        state.empty() || v.message.empty() ? "" : ": ", v.message);
  }
  std::vector<std::string> parts;
  for (const auto& [state, n] : counts) parts.push_back(fmt::format("{} {}", n, name_of(state)));
  return fmt::format(
      "{}{} verdicts: {}. {}\n", text, verdicts.size(), fmt::join(parts, ", "),
      has_errors(verdicts) ? "This file does not train as it is." : "This file trains.");
}

std::string check_json(const std::vector<Verdict>& verdicts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Verdict& v : verdicts)
    list.push_back({{"key", v.key},
                    {"line", v.line},
                    {"column", v.column},
                    {"state", name_of(v.state)},
                    {"message", v.message}});
  return fmt::format("{}\n", list.dump(1));
}

void LoadedConfig::settle(const std::string& key, const std::string& value,
                          const std::string& why) {
  const auto it = std::ranges::find(settings, key, &Setting::key);
  if (it == settings.end())
    settings.push_back({key, value, "derived: " + why});
  else if (it->value != value)
    *it = {key, value, "derived: " + why};
}

std::string resolved_config_json(const LoadedConfig& loaded) {
  LoadedConfig settled = loaded;
  const Job& job = loaded.job;
  settled.settle("run.device", json_text(std::string_view(job.device)), "this machine");
  if (job.model.vocab_size > 0)
    settled.settle("dstrain.model.vocab_size", std::to_string(job.model.vocab_size), "the data");
  const Settings& settings = settled.settings;
  std::string text = "{\n \"values\": {";
  for (const Setting& s : settings)
    text += fmt::format("{}\n  {}: {{\"value\": {}, \"origin\": {}}}",
                        &s == settings.data() ? "" : ",", json_text(std::string_view(s.key)),
                        s.value, json_text(std::string_view(s.origin)));
  return fmt::format("{}\n }}\n}}\n", text);
}

std::string key_table_markdown() {
  const auto escaped = [](std::string_view text) {  // "|" ends a cell
    return fmt::format("{}", fmt::join(split_words(text), "\\|"));
  };
  std::vector<std::pair<std::string, std::string>> sections;  // name, rows; in the table's order
  for (const KeySpec& spec : key_table()) {
    const bool top = spec.key.find('.') == std::string_view::npos && spec.type != Type::section &&
                     spec.type != Type::opaque;
    const std::string name(top ? "top level" : spec.key.substr(0, spec.key.find('.')));
    auto section = std::ranges::find(sections, name, &std::pair<std::string, std::string>::first);
    if (section == sections.end()) section = sections.insert(section, {name, ""});
    const std::string state = !spec.alias.empty() ? fmt::format("as `{}`", spec.alias)
                              : spec.rule         ? std::string(spec.rule->published)
                                                  : std::string(name_of(spec.state));
    const std::string only =
        spec.only.empty() ? "" : fmt::format(" ({})", fmt::join(split_words(spec.only), ", "));
    section->second += fmt::format(
        "| `{}`{} | {} | {} | {} | {} |\n", spec.key, only, escaped(expectation(spec)),
        spec.fallback.empty() ? "" : fmt::format("`{}`", spec.fallback), escaped(state), spec.note);
  }
  std::string text =
      "# Every key and its state\n\n"
      "Written by the program's own table; a test keeps the two equal. States follow DeepSpeed "
      "0.19.8:\n"
      "**honoured** (does what DeepSpeed's does), **no_effect** (legal, changes nothing here),\n"
      "**refused** (never here; the message says what to use), **not_yet** (not available yet).\n"
      "The last two stop a run, as do **unknown** keys (the nearest name is shown) and values in\n"
      "**error**. A key that is not in this table is unknown. Keys whose names\n"
      "begin with `_`, `//` or `#`, and `$schema`, `comment` and `description`, are comments. A "
      "key\n"
      "named by `--ignore KEY` or in `dstrain.ignore` counts as not written. `\"auto\"` is legal "
      "for\n"
      "every value that is not a section: the default, or what the table says. A name in brackets "
      "is\n"
      "the type of optimizer, scheduler or model that has the key.\n";
  for (const auto& [name, rows] : sections)
    text += fmt::format("\n## {}\n\n| key | value | default | state | |\n|---|---|---|---|---|\n{}",
                        name, rows);
  return text;
}

}  // namespace dstrain
