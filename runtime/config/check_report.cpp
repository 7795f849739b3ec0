#include "runtime/config/check_report.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "runtime/config/text.h"

namespace dstrain {

std::string check_text(const std::vector<Verdict>& verdicts, std::string_view way_on,
                       std::string_view terms) {
  std::string text;
  std::map<State, int> counts;
  for (const Verdict& v : verdicts) {
    ++counts[v.state];
    // The message on an unknown key begins with the word "unknown".
    const std::string_view state = v.state == State::unknown && !v.echo ? "" : name_of(v.state);
    text += fmt::format("{}: {}{}{}{}{}\n", v.where, v.key, v.key.empty() ? "" : ": ", state,
                        state.empty() || v.message.empty() ? "" : ": ", v.text());
  }
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
