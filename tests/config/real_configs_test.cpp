// Reads a folder of configurations of other projects. The environment variable DSTRAIN_CORPUS names the folder;
// without it the test is skipped with a warning. DSTRAIN_CORPUS_TRAIN is the number of configurations that
// must train as they are.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "runtime/config/keys/key_table.h"
#include "runtime/config/read/reader.h"
#include "runtime/core/files/input_file.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;

namespace {

void collect(const Node& node, const std::string& path, std::vector<std::string>& keys) {
  for (const Member& m : node.members) {
    const std::string key = path.empty() ? m.key : path + "." + m.key;
    keys.push_back(key);
    collect(m.value, key, keys);
  }
}

}  // namespace

TEST_CASE("corpus: every key of real configurations has a verdict with a place") {
  const char* folder = getenv("DSTRAIN_CORPUS");
  if (!folder) {
    WARN("skipped: DSTRAIN_CORPUS names no folder of configurations");
    return;
  }
  int files = 0, train = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    INFO(entry.path());
    ConfigRequest request;
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
  std::printf("corpus: %d of %d configurations train as they are\n", train, files);
  if (const char* least = getenv("DSTRAIN_CORPUS_TRAIN")) CHECK(train >= std::stoi(least));
}
