// Configurations as people write them: a few of our own in corpus/, and many of other projects, which are no part of
// this one, in a folder shared/corpus beside the checkout.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "models/registry.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/key_table.h"
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

// Checks all configurations below a folder. Returns how many of them train as they are.
int check_folder(const std::string& folder) {
  int files = 0, train = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    INFO(entry.path());
    ConfigRequest request;
    request.models = &model_registry();
    request.path = entry.path().string();
    const LoadedConfig loaded = check_config(request);
    if (!has_errors(loaded.verdicts)) ++train;
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
  CHECK(files > 0);
  return train;
}

}  // namespace

TEST_CASE("corpus: every key of a configuration has a verdict with a place") {
  CHECK(check_folder(DSTRAIN_SOURCE_DIR "/tests/config/corpus") == 3);
}

TEST_CASE("corpus: every key of other projects' configurations has a verdict with a place") {
  const std::string folder = DSTRAIN_SOURCE_DIR "/../shared/corpus/ds_configs";
  SKIP_UNLESS(std::filesystem::is_directory(folder), "there is no " + folder);
  CHECK(check_folder(folder) >= 29);
}
