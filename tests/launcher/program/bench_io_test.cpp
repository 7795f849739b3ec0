// dstrain bench-io: what it prints, what it refuses, and that it leaves no file.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kBench = DSTRAIN_PROGRAM " bench-io ";
constexpr const char* kSmall =
    " --size 4MB --block_size 65536,1048576 --queue_depth 4 --intra_op_parallelism 1,2 ";

bool no_swap_file(const RunFolder& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder.root))
    if (entry.path().filename().string().starts_with("dstrain-")) return false;
  return true;
}

TEST_CASE("bench-io prints a section aio and the time of a step's state") {
  const RunFolder folder;
  RunningProgram bench = folder.start(std::string(kBench) + "tmp" + kSmall + "--parameters 2e9");
  CHECK(bench.wait() == 0);
  CAPTURE(bench.text());
  CHECK(std::regex_search(
      bench.text(),
      std::regex(R"re("aio": \{\n +"block_size": (65536|1048576),\n +"queue_depth": [48],\n)re")));
  CHECK(bench.wrote("with DeepSpeed's defaults"));
  CHECK(std::regex_search(bench.text(), std::regex(R"(\n +2e\+09 +24\.0 GB +[0-9.e+]+ )")));
  CHECK(no_swap_file(folder));
}

TEST_CASE("bench-io --json is one object whose section aio a configuration takes") {
  const RunFolder folder;
  fs::create_directory(folder.root / "second");
  folder.write("aio.json", R"({"aio": {"block_size": 131072, "queue_depth": 2},
                               "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})");
  RunningProgram bench = folder.start(std::string(kBench) + "tmp second" + kSmall +
                                      "--json --config aio.json 2>/dev/null");
  CHECK(bench.wait() == 0);
  CAPTURE(bench.text());
  const json result = json::parse(bench.text());
  CHECK(result["paths"] == json{"tmp", "second"});
  CHECK(result["bytes"] == 2 * 2'002'944);
  CHECK(result["direct"].is_boolean());
  CHECK(result["measured"].size() >= 2 + 1 + 2 + 3 * 3);
  CHECK(result["given"]["block_size"] == 131'072);
  CHECK(result["given"]["queue_depth"] == 2);
  CHECK(result["best"]["read_bytes_per_second"] > 0);
  CHECK(result["adam_state"][1]["parameters"] == 7e9);
  CHECK(result["adam_state"][1]["bytes"] == 84e9);
  json config = {{"train_batch_size", 8}, {"aio", result["aio"]}};
  folder.write("taken.json", config.dump());
  CHECK(folder.start(DSTRAIN_PROGRAM " check --config taken.json").wait() == 0);
  CHECK(no_swap_file(folder));
}

TEST_CASE("bench-io refuses what it cannot measure, with status 1 and one line") {
  const auto [words, error] = GENERATE(table<std::string, std::string>({
      {"nowhere", "nowhere: expected a directory on the drive to measure, found nothing"},
      {"c.json", "c\\.json: expected a directory on the drive to measure, found a file"},
      {"tmp --size 1MB", "--size: expected at least 8388608 bytes, .*, got 1000000"},
      {"tmp --size 900000TB", "the disk store needs 900 PB, and .* are free in tmp: free .*"},
      {"tmp --config none.json", ".*none\\.json.*No such file.*"},
      {"tmp --config wrong.json", "wrong\\.json:1:10: aio\\.queue_depth: expected an integer .*"},
  }));
  CAPTURE(words);
  const RunFolder folder;
  folder.write("wrong.json", R"({"aio": {"queue_depth": 0}})");
  RunningProgram bench = folder.start(std::string(kBench) + words);
  CHECK(bench.wait() == 1);
  const std::string text = only_error(bench.text());
  CAPTURE(text);
  CHECK(std::regex_match(text, std::regex(error)));
  CHECK(lines_of(bench.text()) == 1);
  CHECK(no_swap_file(folder));
}

TEST_CASE("a signal ends bench-io, and nothing is left of its file") {
  const RunFolder folder;
  const std::string endless = std::string(kBench) + "tmp --size 64MB --seconds 1 --block_size " +
                              "4096,8192,16384,32768,65536 --queue_depth 1,2,3,4,5,6,7,8";
  const int number = GENERATE(SIGINT, SIGTERM, SIGKILL);
  RunningProgram bench = folder.start(endless);
  REQUIRE(wait_until([&] { return lines_of(bench.text()) >= 3; }));
  ::kill(bench.pid(), number);
  CHECK(bench.wait() == 128 + number);
  CHECK(no_swap_file(folder));
}

}  // namespace
}  // namespace dstrain
