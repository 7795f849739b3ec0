// report, compare and watch of real runs.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/report/xml_check.h"
#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string said(const RunFolder& folder, const std::string& words, int status = 0) {
  return folder.output_of(std::string(DSTRAIN_PROGRAM) + " " + words, status);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void train(const RunFolder& folder, const std::string& options) {
  RunningProgram program = folder.train(options);
  const int status = program.wait();
  CAPTURE(options, program.text());
  REQUIRE(status == 0);
}

TEST_CASE("a report of a run has the numbers of its metrics, and its pictures as files") {
  const RunFolder folder;
  train(folder, "--num_gpus 2 --set dstrain.trace=out/trace_step_1.json");
  CHECK(has(said(folder, "report out"), "out/report.html: a page of 1 run, "));
  const std::string page = folder.read("out/report.html");
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (has(line, "\"loss\"")) last = line;
  for (const char* name : {"loss", "grad_norm", "step_ms", "peak_bytes"}) {
    const size_t begin = last.find(std::string("\"") + name + "\":") + std::string(name).size() + 3;
    const std::string number = last.substr(begin, last.find_first_of(",}", begin) - begin);
    CHECK(has(page, ">" + number + "<"));
  }
  CHECK(has(page, "Time by instruction class"));
  CHECK(has(page, "Waiting for other ranks"));
  CHECK(has(page, ">done<"));
  int pictures = 0;
  for (const auto& entry : fs::directory_iterator(folder.path("out/report_plots"))) {
    ++pictures;
    CHECK(test::xml_problem(folder.read("out/report_plots/" + entry.path().filename().string())) ==
          "");
  }
  CHECK(pictures >= 10);
}

TEST_CASE("a report of a run that goes on, and of two runs, and their comparison") {
  const RunFolder folder;
  train(folder, "--num_gpus 1");
  fs::rename(folder.path("out"), folder.path("first"));
  RunningProgram program =
      folder.train("--num_gpus 2 --steps 1000000 --set zero_optimization.stage=3");
  REQUIRE(wait_until([&] { return lines_of(folder.read("out/metrics.jsonl")) > 3; }));
  said(folder, "report out");
  CHECK(has(folder.read("out/report.html"), ">in progress<"));
  CHECK(has(said(folder, "report first out --output pages/both.html"),
            "pages/both.html: a page of 2 runs"));
  CHECK(has(folder.read("pages/both.html"), "zero_optimization.stage"));
  CHECK(fs::exists(folder.path("pages/both_plots/loss.svg")));
  CHECK(has(said(folder, "compare first out"), "differing settings"));
  const json compared = json::parse(said(folder, "compare first out --json"));
  CHECK(compared["runs"][1]["state"] == "in progress");
  CHECK(compared["differences"]["zero_optimization.stage"] == json({0, 3}));
  ::kill(program.pid(), SIGINT);
  program.wait();
  said(folder, "report out");
  CHECK(has(folder.read("out/report.html"), ">ended early<"));
}

TEST_CASE("watch serves until ^C, which ends it without an error") {
  const RunFolder folder;
  train(folder, "--num_gpus 1");
  RunningProgram watch = folder.start(std::string(DSTRAIN_PROGRAM) + " watch out");
  REQUIRE(wait_until([&] { return watch.wrote("out at http://127.0.0.1:"); }));
  ::kill(watch.pid(), SIGINT);
  CHECK(watch.wait() == 0);
}

TEST_CASE("folders that are no runs, and a page that cannot be written, are errors that say so") {
  const RunFolder folder;
  CHECK(has(said(folder, "report nowhere", 1), "nowhere: there is no such directory"));
  CHECK(has(said(folder, "watch tmp", 1), "tmp: it has neither metrics.jsonl nor"));
  train(folder, "--num_gpus 1 --steps 1");
  CHECK(has(said(folder, "report out --output tmp", 2), "tmp"));
  CHECK(has(said(folder, "compare out", 1), "dstrain compare needs RUN RUN..."));
}

}  // namespace
}  // namespace dstrain
