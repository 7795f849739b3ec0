#include "runtime/config/report/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/config/text.h"

namespace dstrain {

namespace {

bool is_plain(const Verdict& v) {
  return v.state == State::honoured && v.text().empty();
}

// Returns the line of the keys that are honoured without a word; empty if there are none.
std::string plain_line(const std::vector<Verdict>& verdicts) {
  std::vector<std::string_view> keys;
  for (const Verdict& v : verdicts) {
    const bool has_keys = std::ranges::any_of(verdicts, [&](const Verdict& other) {
      return is_plain(other) && other.key.starts_with(v.key + ".");
    });
    if (is_plain(v) && !has_keys) keys.emplace_back(v.key);
  }
  return keys.empty() ? "" : fmt::format("honoured: {}\n", fmt::join(keys, ", "));
}

}  // namespace

std::string check_text(const std::vector<Verdict>& verdicts, CheckLines lines,
                       std::string_view way_on, std::string_view terms) {
  std::string text;
  std::map<State, int> counts;
  for (const Verdict& v : verdicts) {
    ++counts[v.state];
    if (lines == CheckLines::notable && is_plain(v)) continue;
    // The message on an unknown key begins with the word "unknown".
    const std::string_view state = v.state == State::unknown && !v.echo ? "" : name_of(v.state);
    text += fmt::format("{}: {}{}{}{}{}\n", v.where, v.key, v.key.empty() ? "" : ": ", state,
                        state.empty() || v.message.empty() ? "" : ": ", v.text());
  }
  if (lines == CheckLines::notable) text += plain_line(verdicts);
  std::vector<std::string> parts;
  for (const auto& [state, n] : counts) parts.push_back(fmt::format("{} {}", n, name_of(state)));
  std::string trains = fmt::format("This file trains{}{}.", terms.empty() ? "" : " ", terms);
  if (has_errors(verdicts))
    trains =
        fmt::format("This file does not train as it is{}{}", way_on.empty() ? "." : "; ", way_on);
  return fmt::format("{}{}{}{}. {}\n", text,
                     counted(static_cast<int64_t>(verdicts.size()), "verdict"),
                     parts.empty() ? "" : ": ", fmt::join(parts, ", "), trains);
}

std::string check_json(const std::vector<Verdict>& verdicts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Verdict& v : verdicts)
    list.push_back({{"key", v.key},
                    {"line", v.line},
                    {"column", v.column},
                    {"state", name_of(v.state)},
                    {"message", v.text()}});
  return fmt::format("{}\n", list.dump(1));
}

}  // namespace dstrain
