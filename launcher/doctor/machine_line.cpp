#include "launcher/doctor/machine_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

std::string_view name_of_health(Health health) {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::note:
      return "note";
    case Health::problem:
      break;
  }
  return "problem";
}

// Returns the text with `blanks` blanks in front of every line but the first.
std::string indented(const std::string& text, size_t blanks) {
  std::string all;
  for (const char c : text) {
    all += c;
    if (c == '\n') all.append(blanks, ' ');
  }
  return all;
}

}  // namespace

std::string size_text(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

MachineLines lines_or_problem(const std::string& subject,
                              const std::function<MachineLines()>& look) {
  const auto problem = [&subject](const std::exception& e) {
    return MachineLines{{.subject = subject, .health = Health::problem, .text = e.what()}};
  };
  try {
    return look();
  } catch (const UserError& e) {
    return problem(e);
  } catch (const RunError& e) {
    return problem(e);
  }
}

int64_t count_of(const MachineLines& lines, Health health) {
  return std::ranges::count(lines, health, &MachineLine::health);
}

std::string machine_text(const MachineLines& lines) {
  constexpr size_t verdict = 7;  // the length of "problem"
  size_t subject = 0;
  for (const MachineLine& line : lines) subject = std::max(subject, line.subject.size());
  const size_t before_text = subject + verdict + 4;
  std::string text;
  for (const MachineLine& line : lines) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", line.subject, subject, name_of_health(line.health),
                        verdict, indented(line.text, before_text));
    if (!line.remedy.empty())
      text += fmt::format("{:<{}}{}\n", "", before_text, indented(line.remedy, before_text));
  }
  return text + fmt::format("{}, {}\n", counted(count_of(lines, Health::problem), "problem"),
                            counted(count_of(lines, Health::note), "note"));
}

nlohmann::ordered_json machine_json(const MachineLines& lines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MachineLine& line : lines)
    list.push_back({{"subject", line.subject},
                    {"health", name_of_health(line.health)},
                    {"text", line.text},
                    {"remedy", line.remedy},
                    {"values", line.values}});
  return list;
}

}  // namespace dstrain
