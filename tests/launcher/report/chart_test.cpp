#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "launcher/report/chart/bar_chart.h"
#include "launcher/report/chart/line_chart.h"
#include "launcher/report/chart/markup.h"
#include "launcher/report/chart/ticks.h"
#include "tests/launcher/report/run_files.h"
#include "tests/launcher/report/xml_check.h"

namespace dstrain::report {
namespace {

using test::contains;
using test::xml_problem;

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> texts;
  for (const Tick& tick : ticks) texts.push_back(tick.label);
  return texts;
}

using Texts = std::vector<std::string>;

TEST_CASE("ticks are round numbers with as many digits as they need") {
  CHECK(labels(linear_ticks(0, 1, 5)) == Texts{"0", "0.2", "0.4", "0.6", "0.8", "1"});
  CHECK(labels(linear_ticks(1.9, 4.3, 5)) == Texts{"2", "2.5", "3", "3.5", "4"});
  CHECK(labels(linear_ticks(0, 1'000'000, 5)) == Texts{"0", "0.2M", "0.4M", "0.6M", "0.8M", "1M"});
  CHECK(labels(linear_ticks(0, 3e-5, 3)) == Texts{"0", "1e-5", "2e-5", "3e-5"});
  CHECK(labels(linear_ticks(-1, 1, 4)) == Texts{"-1", "-0.5", "0", "0.5", "1"});
  CHECK(labels(linear_ticks(0, 8e9, 4, Unit::bytes)) == Texts{"0", "2 GB", "4 GB", "6 GB", "8 GB"});
  CHECK(labels(linear_ticks(0, 7200, 4, Unit::seconds)) ==
        Texts{"0", "30 min", "1 h", "1:30 h", "2 h"});
  CHECK(labels(log_ticks(0.01, 100, 8)) == Texts{"0.01", "0.1", "1", "10", "100"});
  CHECK(labels(log_ticks(1e-5, 3e-3, 8)) ==
        Texts{"1e-5", "2e-5", "5e-5", "1e-4", "2e-4", "5e-4", "1e-3", "2e-3"});
  CHECK(labels(log_ticks(1.8, 2.4, 4)) == Texts{"1.8", "2", "2.2", "2.4"});
  CHECK(log_ticks(1e-300, 1e300, 6).size() <= 8);
}

TEST_CASE("ticks of ranges that are none") {
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK(linear_ticks(1, 1, 5).empty());
  CHECK(linear_ticks(2, 1, 5).empty());
  CHECK(linear_ticks(0, infinite, 5).empty());
  CHECK(linear_ticks(1, 1 + 1e-16, 5).empty());
  CHECK(log_ticks(0, 1, 5).empty());
  CHECK(log_ticks(-1, 1, 5).empty());
  CHECK(log_ticks(1, infinite, 5).empty());
}

TEST_CASE("numbers in full are as metrics.jsonl has them, short ones for a reader") {
  CHECK(exact_text(4.233272854317289) == "4.233272854317289");
  CHECK(exact_text(27791424) == "27791424");
  CHECK(exact_text(30000000) == "30000000");
  CHECK(exact_text(3.540644e-07) == "3.540644e-07");
  CHECK(short_text(1.97843016) == "1.978");
  CHECK(short_text(195'512.3) == "195.5k");
  CHECK(short_text(4'123'456'789) == "4.12G");
  CHECK(short_text(3055) == "3055");
  CHECK(short_text(0.00003) == "3e-5");
  CHECK(short_text(std::nan("")) == "–");
}

TEST_CASE("escaped texts have no tag, end no value and are XML, whatever they were") {
  CHECK(escaped("<script>alert('a' & \"b\")</script>") ==
        "&lt;script&gt;alert(&#39;a&#39; &amp; &quot;b&quot;)&lt;/script&gt;");
  CHECK(escaped("größe") == "größe");
  CHECK(escaped(std::string("a\0b", 3)) ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(escaped("\xff<") == "\xEF\xBF\xBD&lt;");
  CHECK(escaped("\xEF\xBF\xBE") == "\xEF\xBF\xBD");
  CHECK(shortened("a long name", 20) == "a long name");
  CHECK(shortened("a very long name", 7) == "a v…ame");
  CHECK(shortened("äöüäöüäöü", 5) == "äö…öü");
}

LineChart chart_of(const std::vector<Point>& points) {
  LineChart chart{.title = "Loss", .y_label = "nats", .x_label = "step"};
  chart.lines.push_back({points, 0, LineLook::plain, "run"});
  return chart;
}

std::string svg_of(const LineChart& chart) {
  return line_chart_svg(chart, {400, 300}, Place::file);
}

TEST_CASE("pictures are XML with their title, axes and legend") {
  const std::string svg = svg_of(chart_of({{1, 4}, {2, 3}, {3, 2.5}}));
  CHECK(xml_problem(svg) == "");
  for (const char* part :
       {">Loss</text>", ">nats</text>", ">step</text>", ">run</text>", "<style>"})
    CHECK(svg.find(part) != std::string::npos);
  CHECK(xml_problem(line_chart_svg(chart_of({{1, 4}, {2, 3}}), {400, 300}, Place::page)) == "");
}

TEST_CASE("a picture shows the values to which the reader points, in full") {
  LineChart chart = chart_of({{1, 4.233272854317289}, {2, std::nan("")}, {3, 2.5}});
  CHECK_FALSE(contains(svg_of(chart), "<title>"));
  chart.lines[0].name = "<run>";
  const std::string svg = svg_of(chart);
  CHECK(xml_problem(svg) == "");
  CHECK(contains(svg, "<title>step 1, &lt;run&gt;: 4.233272854317289</title>"));
  CHECK(contains(svg, "<title>step 3, &lt;run&gt;: 2.5</title>"));
  CHECK_FALSE(contains(svg, "<title>step 2"));
}

TEST_CASE("pictures of any values and texts are XML without numbers that are none") {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  const std::string hostile = "\"/><script>x</script>&\xff" + std::string(500, 'W');
  for (const bool logarithmic : {false, true})
    for (const std::vector<Point>& points :
         std::vector<std::vector<Point>>{{},
                                         {{1, 1}},
                                         {{1, 0}},
                                         {{1, nan}},
                                         {{1, -3}, {2, 4}},
                                         {{1, infinite}, {2, 1}},
                                         {{5, 2}, {5, 2}},
                                         {{1, 1e308}, {2, -1e308}},
                                         {{1, 5e-324}, {2, 1e300}},
                                         {{0, 0}, {1e300, 0}}}) {
      LineChart chart = chart_of(points);
      chart.title = chart.x_label = chart.y_label = chart.lines[0].label = hostile;
      chart.lines[0].name = hostile;
      chart.logarithmic = logarithmic;
      chart.crosses = {2};
      chart.cross_label = hostile;
      chart.lines[0].look = LineLook::marked;
      const std::string svg = svg_of(chart);
      CAPTURE(logarithmic, points.size(), svg.substr(0, 3000));
      CHECK(xml_problem(svg) == "");
      CHECK(svg.find("<script>") == std::string::npos);
      CHECK(svg.find("nan ") == std::string::npos);
      CHECK(svg.find("inf ") == std::string::npos);
    }
  BarChart bars{.title = hostile, .x_label = hostile};
  bars.bars = {{hostile, {{0, 0}, {0, 1}}, hostile}, {"", {{3, 9}}, ""}};
  bars.parts = {hostile, "b"};
  CHECK(xml_problem(bar_chart_svg(bars, 400, Place::file)) == "");
  CHECK(xml_problem(bar_chart_svg({}, 400, Place::page)) == "");
}

TEST_CASE("the checker notices what is no XML") {
  CHECK(xml_problem("<a b=\"c\"><d/>e &amp; f</a>\n") == "");
  for (const char* wrong :
       {"", "<a>", "<a></b>", "<a b=c/>", "<a b=\"<\"/>", "<a>&</a>", "<a/><b/>", "x<a/>",
        "<a b=\"1\" b=\"2\"/>", "<a>\x01</a>", "<a b=\"1/>"})
    CHECK(xml_problem(wrong) != "");
}

}  // namespace
}  // namespace dstrain::report
