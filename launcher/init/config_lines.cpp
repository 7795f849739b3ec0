#include "launcher/init/config_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runtime/config/json/reader.h"
#include "runtime/config/json/tree.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// A section, or a value where there is nothing inside.
struct ConfigEntry {
  std::string name{}, value{}, comment{};
  std::vector<ConfigEntry> inside{};

  // Returns the entry of that name, which is made where there is none.
  ConfigEntry& at(std::string_view wanted) {
    const auto found = std::ranges::find(inside, wanted, &ConfigEntry::name);
    if (found != inside.end()) return *found;
    return inside.emplace_back(ConfigEntry{.name = std::string(wanted)});
  }
};

void add_line(ConfigEntry& root, const ConfigLine& line) {
  ConfigEntry* at = &root;
  ConfigEntry* begun = nullptr;  // the innermost section that this line begins
  std::string_view key = line.key;
  for (size_t dot = 0; (dot = key.find('.')) != std::string_view::npos;
       key.remove_prefix(dot + 1)) {
    at = &at->at(key.substr(0, dot));
    begun = at->inside.empty() ? at : nullptr;
  }
  ConfigEntry& entry = at->at(key);
  entry.value = line.value;
  entry.inside.clear();
  if (!line.comment.empty()) (begun != nullptr ? *begun : entry).comment = line.comment;
}

void write_section(std::string& text, const ConfigEntry& section, size_t depth) {
  const std::string indent(2 * depth, ' ');
  for (const ConfigEntry& entry : section.inside) {
    if (!entry.comment.empty()) text += fmt::format("{}// {}\n", indent, entry.comment);
    text += fmt::format("{}\"{}\": ", indent, entry.name);
    if (entry.inside.empty()) {
      text += entry.value;
    } else {
      text += "{\n";
      write_section(text, entry, depth + 1);
      text += indent + "}";
    }
    text += &entry == &section.inside.back() ? "\n" : ",\n";
  }
}

}  // namespace

ConfigLine line_of_set(const std::string& set) {
  const size_t equals = set.find('=');
  const std::string key = set.substr(0, equals);
  if (equals == std::string::npos || equals + 1 == set.size() ||
      ("." + key + ".").find("..") != std::string::npos || key.find('"') != std::string::npos)
    fail_user("--set: expected path.to.key=value, got '{}'", printable(set));
  const std::string value = set.substr(equals + 1);
  try {
    return {key, json_text(read_value(value, Source::set))};
  } catch (const SyntaxError&) {
    return {key, json_text(std::string_view(value))};
  }
}

std::vector<std::string> as_sets(const std::vector<ConfigLine>& lines) {
  std::vector<std::string> sets;
  for (const ConfigLine& line : lines) sets.push_back(line.key + "=" + line.value);
  return sets;
}

std::string config_text(const std::vector<std::string>& head,
                        const std::vector<ConfigLine>& lines) {
  std::string text = "{\n";
  for (const std::string& line : head) text += fmt::format("  // {}\n", line);
  ConfigEntry root;
  for (const ConfigLine& line : lines) add_line(root, line);
  write_section(text, root, 1);
  return text + "}\n";
}

}  // namespace dstrain
