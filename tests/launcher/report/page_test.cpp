#include "launcher/report/page/page.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/report/page/comparison.h"
#include "runtime/core/error.h"
#include "tests/launcher/report/run_files.h"
#include "tests/launcher/report/xml_check.h"

namespace dstrain::report {
namespace {

using test::contains;
using test::Runs;
using test::step_line;

constexpr const char* kConfig = R"({"values": {
  "run.ranks": {"value": 2, "origin": "--num_gpus"},
  "dstrain.steps": {"value": 3, "origin": "c.json:4:5"},
  "zero_optimization.stage": {"value": 0, "origin": "default"},
  "optimizer.type": {"value": "AdamW", "origin": "derived: it is usual"}}})";

std::string with_stage(const std::string& stage) {
  std::string text = kConfig;
  const std::string key = R"("zero_optimization.stage": {"value": 0)";
  return text.replace(text.find(key), key.size(),
                      R"("zero_optimization.stage": {"value": )" + stage);
}

// Checks the pictures of a page, and that it loads nothing and runs nothing.
void check_safe(const std::string& page) {
  CHECK_FALSE(contains(page, "<script"));
  CHECK_FALSE(contains(page, "<link rel=\"stylesheet"));
  CHECK_FALSE(contains(page, "@import"));
  CHECK_FALSE(contains(page, "url("));
  size_t from = 0;
  for (size_t at = 0; (at = page.find("http", from)) != std::string::npos; from = at + 4) {
    const std::string there = page.substr(at, 40);
    CHECK((there.starts_with("http://www.w3.org/2000/svg") || there.starts_with("http-equiv")));
  }
  from = 0;
  int pictures = 0;
  for (size_t at = 0; (at = page.find("<svg", from)) != std::string::npos; ++pictures) {
    from = page.find("</svg>", at) + 6;
    CHECK(test::xml_problem(page.substr(at, from - at)) == "");
  }
  CHECK(pictures > 0);
}

TEST_CASE("the numbers of a page are those of metrics.jsonl, with all digits") {
  const Runs runs;
  const std::string page =
      Runs::page({runs.make("a",
                            step_line(1, "4.233272854317289") + step_line(2, "3.012345678901234") +
                                R"({"step":2,"val_loss":3.1234567890123457})"
                                "\n" +
                                step_line(3, "3.5000000000000004"),
                            kConfig)});
  for (const char* number : {"4.233272854317289", "3.012345678901234", "3.5000000000000004",
                             "3.1234567890123457", "27791424", "3753984"})
    CHECK(contains(page, std::string(">") + number + "<"));
  CHECK(contains(page, ">3.5000<"));  // the card of the last loss
  CHECK(contains(page, "best 3.0123 at step 2"));
  CHECK(contains(page, ">done<"));
  CHECK(contains(page, "--num_gpus"));
  CHECK(contains(page, "2 settings by default"));
  CHECK(contains(page, "c.json:4:5"));
  CHECK(contains(page, "ZeRO stage 0, 2 ranks"));
  CHECK(contains(page, "MFU: a run shows it"));
  check_safe(page);
}

TEST_CASE("hostile names and values of a run do not become a part of the page") {
  const Runs runs;
  const std::string script = "<script>alert(1)</script>";
  std::string config = kConfig;
  config.replace(config.find("AdamW"), 5,
                 "\\\"><script>alert(2)</script><img src=x onerror=alert(3)>");
  config.replace(config.find("c.json"), 6, "</style></title>" + std::string("<script>"));
  std::filesystem::create_directories(runs.folder / "x");
  const std::string name =
      "<script>alert(1)<"
      "\xff\x01"
      "&quot;'\">";
  const std::string page = Runs::page(
      {runs.make(name,
                 step_line(1, 4) +
                     R"({"step":2,"loss":3,"</text></svg><script>":5,"losses":{"]]>&":1}})"
                     "\n",
                 config),
       runs.make("b", step_line(1, 4), kConfig)});
  CHECK_FALSE(contains(page, "<img"));
  CHECK_FALSE(contains(page, "<script"));
  CHECK(contains(page, "&lt;script&gt;alert(1)&lt;"));
  CHECK(contains(page, "&lt;img src=x onerror=alert(3)&gt;"));
  check_safe(page);
}

TEST_CASE("a page of several runs says where their settings differ") {
  const Runs runs;
  const std::string page = Runs::page(
      {runs.make("a", step_line(1, 4), kConfig), runs.make("b", step_line(1, 5), with_stage("3"))});
  CHECK(contains(
      page,
      "<td class=\"k\">zero_optimization.stage</td><td class=\"k\">0</td><td class=\"k\">3</td>"));
  CHECK(contains(page, ">a, b<"));
  check_safe(page);
  CHECK(contains(Runs::page({runs.make("c", "", kConfig), runs.make("d", "", kConfig)}),
                 "The runs have the same settings."));
}

TEST_CASE("runs of the same name are told apart by the folders above") {
  const Runs runs;
  const auto records = read_runs({runs.make("x/out", ""), runs.make("y/out", "")}, 10);
  CHECK(records[0].name == "x/out");
  CHECK(records[1].name == "y/out");
}

TEST_CASE("an empty run has a page that says so; a folder that is none of a run is an error") {
  const Runs runs;
  const std::string page = Runs::page({runs.make("a", "")});
  CHECK(contains(page, "metrics.jsonl has no step and no validation yet."));
  CHECK(contains(page, ">no step<"));
  std::filesystem::create_directories(runs.folder / "empty");
  CHECK_THROWS_AS(Runs::page({runs.folder / "empty"}), UserError);
  CHECK_THROWS_AS(Runs::page({runs.folder / "missing"}), UserError);
}

TEST_CASE("a page says what it has left out") {
  const Runs runs;
  const std::string page =
      Runs::page({runs.make("a", step_line(1, 4) + step_line(2, "null") + "nonsense\n" +
                                     step_line(2, 3) + "{\"step\":3,\"lo")});
  CHECK(contains(
      page, "metrics.jsonl goes back 1 time: 1 line of steps that were done again is left out."));
  CHECK(contains(page, "1 line of metrics.jsonl cannot be read and is left out."));
  CHECK(contains(page, "The last line of metrics.jsonl is incomplete and is left out."));
  CHECK(contains(Runs::page({runs.make("b", step_line(1, "null") + step_line(2, 1))}),
                 "1 step had no finite loss."));
  CHECK(contains(Runs::page({runs.make("c", step_line(1, 1), "{\"values\": 3}")}),
                 "expected the member &quot;values&quot;"));
}

TEST_CASE("a page of a million steps is small and shows the only outlier") {
  const Runs runs;
  runs.make("long", "");
  {
    std::ofstream file(runs.folder / "long/metrics.jsonl");
    for (int step = 1; step <= 1'000'000; ++step)
      file << step_line(step, step == 777'777 ? 99.5 : 2 + (step * 7919 % 1000) / 1000.);
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::string page = Runs::page({runs.folder / "long"});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CAPTURE(took.count());
  CHECK(page.size() < 5'000'000);
  CHECK(contains(page, ">99.5<"));
  CHECK(contains(page, ">777777<"));
  CHECK(took.count() < 120);  // seconds, with sanitizers and beside other tests
}

TEST_CASE("twenty runs of any length still make a small page") {
  const Runs runs;
  std::string text;
  for (int step = 1; step <= 5000; ++step)
    text += step_line(step, 2 + (step * 7919 % 1000) / 1000.);
  std::vector<std::string> all;
  for (int i = 0; i < 20; ++i) all.push_back(runs.make(fmt::format("run{}", i), text, kConfig));
  const std::string page = Runs::page(all);
  CHECK(page.size() < 5'000'000);
  CHECK(contains(page, "20 runs"));
}

TEST_CASE("compare prints a table, and JSON with numbers in full") {
  const Runs runs;
  const auto records =
      read_runs({runs.make("a", step_line(1, "4.25") + step_line(2, "3.012345678901234"), kConfig),
                 runs.make("b",
                           step_line(1, 5) + R"({"step":1,"val_loss":4.5})"
                                             "\n",
                           with_stage("3"))},
                100);
  const std::string text = comparison_text(records);
  for (const char* part :
       {"final loss", "3.0123", "5.0000", "final validation loss", "4.5000", "27.8 MB", "2000",
        "50 ms", "differing settings\nzero_optimization.stage", "MFU is not recorded"})
    CHECK(contains(text, part));
  const auto json = nlohmann::json::parse(comparison_json(records));
  CHECK(json["runs"][0]["final_loss"] == 3.012345678901234);
  CHECK(json["runs"][0]["best_val_loss"].is_null());
  CHECK(json["runs"][1]["best_val_loss"] == 4.5);
  CHECK(json["runs"][0]["peak_bytes"] == 27791424);
  CHECK(json["runs"][0]["mfu"].is_null());
  CHECK(json["differences"]["zero_optimization.stage"] == nlohmann::json({0, 3}));
}

}  // namespace
}  // namespace dstrain::report
