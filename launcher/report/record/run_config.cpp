#include "launcher/report/record/run_config.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "runtime/config/json/reader.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain::report {
namespace {

const ConfigEntry* find_entry(const RunConfig& config, std::string_view key) {
  const auto found = std::ranges::find(config, key, &ConfigEntry::key);
  return found == config.end() ? nullptr : &*found;
}

Node read_tree(const std::string& path) {
  const std::string text =
      read_input_file(path, "the settings of a run", static_cast<int64_t>(kMaxConfigBytes));
  try {
    return read_config(text, Source::file);
  } catch (const SyntaxError& e) {
    fail_user("{}:{}:{}: {}", path, e.line, e.column, e.what());
  }
}

}  // namespace

bool ConfigEntry::is_given() const {
  return origin != "default" && !origin.starts_with("derived") && !origin.starts_with("auto");
}

RunConfig read_run_config(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {};
  const Node tree = read_tree(path);
  const Member* const values = tree.member("values");
  if (values == nullptr || !values->value.is(Node::Kind::object))
    fail_user("{}: expected the member \"values\" of a resolved configuration", path);
  RunConfig config;
  for (const Member& setting : values->value.members) {
    const Member* const value = setting.value.member("value");
    const Member* const origin = setting.value.member("origin");
    if (value == nullptr)
      fail_user("{}:{}: {} has no \"value\"", path, setting.place.line, setting.key);
    config.push_back({setting.key, json_text(value->value),
                      origin != nullptr ? origin->value.text : std::string()});
  }
  return config;
}

std::string value_of(const RunConfig& config, std::string_view key) {
  const ConfigEntry* const entry = find_entry(config, key);
  if (entry == nullptr) return "";
  if (!entry->value.starts_with('"')) return entry->value;
  return read_value(entry->value, Source::file).text;
}

std::vector<ConfigDifference> config_differences(const std::vector<const RunConfig*>& runs) {
  static constexpr auto names_run = [](const std::string& key) {
    return key == "run.output" || key == "run.resume" || key == "run.overwrite" ||
           key == "run.resume_with_changes";
  };
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const RunConfig* run : runs)
    for (const ConfigEntry& entry : *run)
      if (!names_run(entry.key) && seen.insert(entry.key).second) keys.push_back(entry.key);
  std::vector<ConfigDifference> differences;
  for (const std::string& key : keys) {
    ConfigDifference difference{key, {}};
    std::set<std::optional<std::string>> values;
    for (const RunConfig* run : runs) {
      const ConfigEntry* const entry = find_entry(*run, key);
      difference.values.push_back(entry != nullptr ? std::optional(entry->value) : std::nullopt);
      if (!run->empty()) values.insert(difference.values.back());
    }
    if (values.size() > 1) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace dstrain::report
