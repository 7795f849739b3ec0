// Configurations as people write them: a few of our own in corpus/, and many of other projects, which are no part of
// this one, in a folder shared/corpus beside the checkout.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/keys/table/numbers.h"
#include "runtime/core/files/input_file.h"
#include "tests/config/config_fixture.h"
#include "tests/support/skip.h"

using namespace dstrain;

namespace {

void collect(const Node& node, const std::string& path, std::vector<std::string>& keys) {
  for (const Member& m : node.members) {
    const std::string key = path.empty() ? m.key : path + "." + m.key;
    keys.push_back(key);
    collect(m.value, key, keys);
  }
}

// What becomes of configurations.
struct Counts {
  int files = 0;
  int train = 0;       // as they are
  int by_command = 0;  // with the options of the way on
};

// Returns the words of a command line, of which a shell takes what is in single quotes as it is.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'')
      quoted = !quoted;
    else if (c == ' ' && !quoted)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

// Returns the request with the options of a way on, "it trains with --ignore a,b --set c=d".
ConfigRequest followed(ConfigRequest request, const std::string& way_on) {
  const std::vector<std::string> words = words_of(way_on);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--ignore") {
      std::istringstream keys(words[i + 1]);
      for (std::string key; std::getline(keys, key, ',');) request.ignored.push_back(key);
    }
    if (words[i] == "--set") request.sets.push_back(words[i + 1]);
  }
  return request;
}

// Checks that the way on trains and that it leaves out no key of the table that numbers depend on.
void check_way_on(const ConfigRequest& request, const std::string& way_on) {
  INFO(way_on);
  const ConfigRequest on = followed(request, way_on);
  for (const std::string& key : on.ignored) {
    INFO(key);
    const bool known = std::ranges::any_of(model_registry().keys(),
                                           [&](const KeySpec& spec) { return spec.key == key; });
    CHECK((!known || changes_no_number(key) || key == "optimizer.params.max_grad_norm"));
  }
  CHECK_FALSE(has_errors(check_config(on).verdicts));
}

// Checks all configurations below a folder.
Counts check_folder(const std::string& folder) {
  Counts counts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    ++counts.files;
    INFO(entry.path());
    ConfigRequest request;
    request.models = &model_registry();
    request.path = entry.path().string();
    const LoadedConfig loaded = check_config(request);
    if (!has_errors(loaded.verdicts)) ++counts.train;
    if (loaded.way_on.starts_with("it trains with")) {
      ++counts.by_command;
      check_way_on(request, loaded.way_on);
    }
    std::multiset<std::string> judged;
    for (const Verdict& v : loaded.verdicts) {
      CHECK(v.line > 0);
      CHECK(v.column > 0);
      if (is_error(v.state)) CHECK_FALSE(v.message.empty());
      judged.insert(v.key);
    }
    try {
      std::vector<std::string> keys;
      collect(read_config(read_input_file(request.path, "the configuration", kMaxConfigBytes),
                          Source::file),
              "", keys);
      for (const std::string& key : keys) CHECK(judged.count(key) > 0);
    } catch (const SyntaxError&) {
      CHECK(loaded.verdicts.size() == 1);
      CHECK(has_errors(loaded.verdicts));
    }
  }
  CHECK(counts.files > 0);
  return counts;
}

}  // namespace

TEST_CASE("corpus: every key of a configuration has a verdict with a place") {
  const Counts counts = check_folder(DSTRAIN_SOURCE_DIR "/tests/config/corpus");
  CHECK(counts.train == 3);
  CHECK(counts.by_command == 1);
}

TEST_CASE("corpus: other projects' configurations train, by one command, or are refused") {
  const std::string folder = DSTRAIN_SOURCE_DIR "/../shared/corpus/ds_configs";
  SKIP_UNLESS(std::filesystem::is_directory(folder), "there is no " + folder);
  const Counts counts = check_folder(folder);
  INFO(counts.files << " files: " << counts.train << " train as they are, " << counts.by_command
                    << " by one command");
  CHECK(counts.train >= 34);
  CHECK(counts.by_command >= 8);
}
