#include "launcher/report/record/trace_times.h"

#include <catch2/catch.hpp>

#include "tests/launcher/report/run_files.h"

namespace dstrain::report {
namespace {

// Two ranks, three steps, of which the first takes longer.
std::string trace_text() {
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (int rank = 0; rank < 2; ++rank) {
    for (const char* track : {"step", "compute", "comm", "host", "copy", "io", "waiting"}) {
      static int number = 0;
      text += fmt::format(
          R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}},)"
          "\n",
          rank, number++ % 7, track);
    }
    for (int step = 1; step <= 3; ++step) {
      const int ms = step == 1 ? 50 : 10;
      text += fmt::format(
          R"({{"ph":"X","pid":{0},"tid":0,"ts":1,"dur":{1},"name":"step {2}","args":{{"compute_ms":7,)"
          R"("exposed_comm_ms":2,"other_ms":1}}}},)"
          R"({{"ph":"X","pid":{0},"tid":1,"ts":1,"dur":{3},"name":"linear blocks.0.f0","args":{{"micro_batch":0}}}},)"
          R"({{"ph":"X","pid":{0},"tid":1,"ts":1,"dur":1000,"name":"linear head","args":{{"micro_batch":0}}}},)"
          R"({{"ph":"X","pid":{0},"tid":2,"ts":1,"dur":4000,"name":"all_reduce head","args":{{}}}},)"
          R"({{"ph":"X","pid":{0},"tid":6,"ts":1,"dur":{4},"name":"wait","args":{{}}}},)"
          "\n",
          rank, ms * 1000, step, ms * 500, rank * 3000);
    }
  }
  text.erase(text.find_last_of(','));
  return text + "]}\n";
}

TEST_CASE("a trace gives the times of a step by class, queue and rank, without the first step") {
  const TempDir folder;
  const auto times = read_trace_times(folder.write("trace.json", trace_text()));
  REQUIRE(times.has_value());
  CHECK(times->steps == 2);
  REQUIRE(times->ranks.size() == 2);
  CHECK(times->ranks.at(0).compute == 7);
  CHECK(times->ranks.at(1).exposed_comm == 2);
  CHECK(times->ranks.at(0).waiting == 0);
  CHECK(times->ranks.at(1).waiting == 3);
  CHECK(times->classes.at({"compute", "linear"}) == 6);
  CHECK(times->classes.at({"comm", "all_reduce"}) == 4);
  CHECK(times->classes.size() == 2);
}

TEST_CASE("what is no trace, or a part of one, has no times") {
  const TempDir folder;
  const std::string text = trace_text();
  for (const std::string& wrong :
       {std::string(), std::string("{}"), std::string("[1,2"), text.substr(0, text.size() / 2),
        std::string(R"({"traceEvents":[{"ph":"X","pid":1e99,"tid":-1e99,"dur":"x"}]})"),
        std::string(100'000, '[')})
    CHECK_FALSE(read_trace_times(folder.write("trace.json", wrong)).has_value());
  CHECK_FALSE(read_trace_times("/nowhere").has_value());
}

}  // namespace
}  // namespace dstrain::report
