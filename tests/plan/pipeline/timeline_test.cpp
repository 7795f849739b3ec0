#include "runtime/plan/pipeline/timeline.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/pipeline/pipelines.h"

using namespace dstrain;

namespace {

// Two stages: forward takes 1, the gradients 1 each, or 2 together.
struct TimelineCase {
  TimelineCase(PipelineSchedule schedule, int stages, int micros)
      : orders(
            pipeline_orders(schedule, stages, schedule == PipelineSchedule::zb_v ? 2 : 1, micros)) {
    const PhaseSeconds one = {1, splits_backward(schedule) ? 1.0 : 2.0, 1};
    times = run_orders(orders, std::vector(orders.stages() * orders.parts[0].size(), one), 0);
  }
  std::string text(size_t width) const { return timeline_text("A step", orders, times, width); }
  PipelineOrders orders;
  PipelineTimes times;
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("timeline: text of 1f1b") {
  const TimelineCase step(PipelineSchedule::one_f_one_b, 2, 3);
  CHECK(step.text(80) ==
        "A step\n"
        "bubble 25.0 %, in flight 2 1\n"
        "F forward, B backward, . idle\n"
        "stage 0  F0F1....B0--F2B1--..B2--\n"
        "stage 1  ..F0B0--F1B1--F2B2--....\n");
  CHECK(step.text(30) ==
        "A step\n"
        "bubble 25.0 %, in flight 2 1\n"
        "F forward, B backward, . idle\n"
        "stage 0  FF..B0FB1.B2\n"
        "stage 1  .FB0FB1FB2..\n");
}

TEST_CASE("timeline: text of zb-v, with chunks and weight gradients") {
  CHECK(TimelineCase(PipelineSchedule::zb_v, 2, 2).text(80) ==
        "A step\n"
        "bubble 7.7 %, in flight 2+2 2+2\n"
        "F forward, B backward, W weight gradients, . idle; lower case: chunks after the first\n"
        "stage 0  F0F1..f0b0f1b1B0w0B1w1W0W1\n"
        "stage 1  ..F0f0F1f1b0B0b1B1w0W0w1W1\n");
}

TEST_CASE("timeline: rows of text keep the width") {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::zb_v})
    for (const size_t width : {10, 11, 17, 40, 100, 1000}) {
      const TimelineCase step(schedule, 4, 16);
      const std::string text = step.text(width);
      size_t line = 0;
      for (size_t begin = text.find("stage 0"); begin < text.size(); begin = line + 1) {
        line = text.find('\n', begin);
        CHECK(line - begin <= width);
      }
    }
}

TEST_CASE("timeline: an image has a box for every task, and what a reader needs") {
  const TimelineCase step(PipelineSchedule::zb_v, 4, 8);
  const std::string svg = timeline_svg("Four <stages> & more", step.orders, step.times);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "Four &lt;stages&gt; &amp; more") == 1);
  CHECK(count(svg, "<title>") == 4 * 2 * 8 * 3);
  CHECK(count(svg, "<title>forward of micro-batch 3 in chunk 1, ") == 4);
  CHECK(count(svg, "</text>") == count(svg, "<text "));
  for (const char* text : {">stage 0<", ">stage 3<", ">forward<", ">backward<",
                           ">weight gradients<", ">weight gradients, odd chunks<"})
    CHECK(count(svg, text) == 1);
  CHECK(count(svg, timeline_heading(step.orders, step.times)) == 1);
  const TimelineCase whole(PipelineSchedule::gpipe, 2, 2);
  CHECK(count(timeline_svg("gpipe", whole.orders, whole.times), "weight gradients") == 0);
}

TEST_CASE("timeline: a step that does not end has none, nor has a width without room") {
  TimelineCase step(PipelineSchedule::gpipe, 2, 1);
  CHECK_THROWS_AS(step.text(9), InternalError);
  step.orders.tasks[1].clear();
  step.times = run_orders(step.orders, {{1, 2, 0}, {1, 2, 0}}, 0);
  CHECK_THROWS_AS(step.text(80), InternalError);
  CHECK_THROWS_AS(timeline_svg("", step.orders, step.times), InternalError);
}
