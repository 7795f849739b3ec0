#include "launcher/report/record/run_metrics.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/launcher/report/run_files.h"

namespace dstrain::report {
namespace {

using test::step_line;

RunMetrics read(const std::string& text) {
  const TempDir folder;
  return read_run_metrics(folder.write("metrics.jsonl", text), 100);
}

TEST_CASE("metrics.jsonl is read with its values, medians and sums") {
  const RunMetrics metrics = read(
      step_line(1, 4.233272854317289) + step_line(2, 3.5) +
      R"({"step":2,"val_loss":3.75})"
      "\n" +
      R"({"step":3,"loss":3,"lr":0,"grad_norm":2,"skipped":true,"tokens":300,"samples_per_second":1,)"
      R"("step_ms":100,"codec_error":{"weights":0.25,"gradients":0.5}})"
      "\n");
  CHECK(metrics.steps == 3);
  CHECK(metrics.first_step == 1);
  CHECK(metrics.last_step == 3);
  CHECK(metrics.skipped == 1);
  CHECK(metrics.final_loss == 3);
  CHECK(metrics.step_ms == 50);
  CHECK(metrics.tokens_per_second == 2000);
  CHECK(metrics.samples_per_second == 20.5);
  CHECK(metrics.tokens == 500);
  CHECK(metrics.seconds == Approx(0.2));
  REQUIRE(metrics.find("loss") != nullptr);
  CHECK(metrics.find("loss")->values.most.y == 4.233272854317289);
  REQUIRE(metrics.find("val_loss") != nullptr);
  CHECK(metrics.find("val_loss")->values.last == 3.75);
  REQUIRE(metrics.find("codec_error/gradients") != nullptr);
  CHECK(metrics.find("codec_error/gradients")->values.last == 0.5);
  CHECK(metrics.find("step") == nullptr);
  CHECK(metrics.find("nothing") == nullptr);
}

TEST_CASE("steps that a restart has done again count once, with their later values") {
  std::string text;
  for (int step = 1; step <= 6; ++step) text += step_line(step, 10 + step);
  text += R"({"step":6,"val_loss":60})"
          "\n";
  for (int step = 4; step <= 5; ++step) text += step_line(step, 20 + step);
  for (int step = 3; step <= 8; ++step) text += step_line(step, 30 + step);
  const RunMetrics metrics = read(text);
  CHECK(metrics.steps == 8);
  CHECK(metrics.last_step == 8);
  CHECK(metrics.restarts == 2);
  CHECK(metrics.repeated == 4 + 2 + 1);
  CHECK(metrics.find("val_loss") == nullptr);
  std::vector<double> losses;
  for (const Point& point : metrics.find("loss")->values.points) losses.push_back(point.y);
  CHECK(losses == std::vector<double>{11, 12, 33, 34, 35, 36, 37, 38});
}

TEST_CASE("a file whose steps descend is read in time linear in its length") {
  std::string text;
  for (int step = 200'000; step > 0; --step)
    text += fmt::format("{{\"step\":{},\"loss\":1}}\n", step);
  const RunMetrics metrics = read(text);
  CHECK(metrics.steps == 1);
  CHECK(metrics.repeated == 199'999);
}

TEST_CASE("a torn last line is left out, and counts when it is whole") {
  const std::string whole = step_line(1, 4) + step_line(2, 3);
  const RunMetrics torn = read(whole.substr(0, whole.size() - 30));
  CHECK(torn.steps == 1);
  CHECK(torn.torn);
  CHECK(torn.unreadable == 0);
  CHECK_FALSE(read(whole).torn);
}

TEST_CASE("losses that are no finite numbers are counted, and where they are is known") {
  const RunMetrics metrics =
      read(step_line(1, 4) + step_line(2, "null") + step_line(3, "null") + step_line(4, 2));
  CHECK(metrics.steps == 4);
  CHECK(metrics.without_loss == 2);
  CHECK(metrics.steps_without_loss == std::vector<int64_t>{2, 3});
  CHECK(metrics.final_loss == 2);
  CHECK(std::isnan(read(step_line(1, "null")).final_loss));
}

TEST_CASE("a file that is missing or empty has no steps") {
  CHECK(read_run_metrics("/nowhere/metrics.jsonl", 10).steps == 0);
  const RunMetrics empty = read("");
  CHECK(empty.steps == 0);
  CHECK(empty.metrics.empty());
  CHECK_FALSE(empty.torn);
}

TEST_CASE("lines that are none of a run are counted and do no harm") {
  std::string text = step_line(1, 4);
  for (const char* line :
       {"[]", "{}", "1", "nonsense", R"({"step":-1,"loss":1})", R"({"step":1.5,"loss":1})",
        R"({"step":"2","loss":1})", R"({"step":18446744073709551615,"loss":1})",
        R"({"step":null,"loss":1})", "{\"step\":2,\"loss\":\xff\xfe}"})
    text += std::string(line) + "\n";
  text += std::string(5'000'000, '[') + "\n";  // longer than any line of a run
  text += "{\"step\":2" + std::string(100'000, '{') + "\n";
  text += R"({"step":2,"loss":3,"text":"x","list":[1,[2,{"a":3}]],"deep":{"a":{"b":7}}})"
          "\n";
  const RunMetrics metrics = read(text);
  CHECK(metrics.steps == 2);
  CHECK(metrics.unreadable == 11);
  REQUIRE(metrics.find("deep/a/b") != nullptr);
  CHECK(metrics.find("deep/a/b")->values.last == 7);
}

TEST_CASE("a file with ever new names does not make the reader grow") {
  std::string text;
  for (int i = 1; i <= 2000; ++i)
    text += fmt::format("{{\"step\":{},\"loss\":1,\"name{}\":1}}\n", i, i);
  const RunMetrics metrics = read(text);
  CHECK(metrics.steps == 2000);
  CHECK(metrics.metrics.size() < 300);
}

}  // namespace
}  // namespace dstrain::report
