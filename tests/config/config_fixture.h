// Fixtures of the configuration's tests: a temporary configuration file, and functions that return one verdict,
// one setting or the whole error.
#pragma once

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/config/load.h"
#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain::test {

// A configuration file in a temporary folder of its own, which is removed with the object.
class TempFile {
 public:
  explicit TempFile(const std::string& text, const std::string& name = "c.json")
      : path_(folder_.write(name, text)) {}
  const std::string& path() const { return path_; }

 private:
  TempDir folder_;
  std::string path_;
};

// Removes the random folder of the temporary file from a message.
inline std::string without_folder(std::string text, const TempFile& file) {
  const std::string folder = std::filesystem::path(file.path()).parent_path().string() + "/";
  for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
    text.erase(at, folder.size());
  return text;
}

// A configuration as text, and the settings of the command line. The functions load or check the configuration.
// In their results and errors, the folder of the temporary file is removed from paths.
struct Ask {
  std::string text;
  ConfigRequest request{};

  LoadedConfig check() const {
    const TempFile file(text);
    ConfigRequest r = request;
    r.path = file.path();
    if (!r.models) r.models = &model_registry();
    LoadedConfig loaded = check_config(r);
    for (Verdict& v : loaded.verdicts) v.where = without_folder(v.where, file);
    for (std::string& w : loaded.warnings) w = without_folder(w, file);
    return loaded;
  }
  LoadedConfig load() const {
    const TempFile file(text);
    ConfigRequest r = request;
    r.path = file.path();
    if (!r.models) r.models = &model_registry();
    try {
      LoadedConfig loaded = load_config(r);
      for (Setting& s : loaded.settings) s.origin = without_folder(s.origin, file);
      for (std::string& w : loaded.warnings) w = without_folder(w, file);
      return loaded;
    } catch (const UserError& e) {
      throw UserError(without_folder(e.what(), file));
    }
  }
  Job job() const { return load().job; }
  // Returns the errors without their ways on, of which way_on_test.cpp has the cases.
  std::string error() const {
    try {
      load();
    } catch (const UserError& e) {
      const std::regex ways("; (DeepSpeed [^;\n]*; )?`--[^\n]*");
      const std::regex last("\n  (it trains with|what is left to mend) [^\n]*$");
      return std::regex_replace(std::regex_replace(std::string(e.what()), ways, ""), last, "");
    }
    return "no error";
  }
};

inline Ask ask(std::string text, std::vector<std::string> sets = {}, int64_t ranks = 0) {
  Ask a{std::move(text)};
  a.request.sets = std::move(sets);
  if (ranks) a.request.ranks = ranks;
  return a;
}

// "state: message" of the verdict on `key`, or "none".
inline std::string verdict(const LoadedConfig& loaded, const std::string& key) {
  for (const Verdict& v : loaded.verdicts)
    if (v.key == key)
      return std::string(name_of(v.state)) + (v.message.empty() ? "" : ": " + v.message);
  return "none";
}

// Returns a configuration that trains, with `members` in front.
inline std::string trains_with(const std::string& members) {
  return "{" + members + (members.empty() ? "" : ", ") + "\"train_micro_batch_size_per_gpu\": 2}";
}

inline Setting setting(const LoadedConfig& loaded, const std::string& key) {
  for (const Setting& s : loaded.settings)
    if (s.key == key) return s;
  return {};
}

}  // namespace dstrain::test
