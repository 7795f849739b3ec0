#include "runtime/engine/step/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "runtime/core/files/atomic_file.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr int kStepTrack = 0, kWaitTrack = 1 + kQueues;  // the tracks of queues are between them

int track_of(Queue queue) {
  return 1 + static_cast<int>(queue);
}

const Instruction& instruction_of(const Plan& plan, size_t issue) {
  return plan.program.instructions[static_cast<size_t>(plan.order[issue].instruction)];
}

class EventList {
 public:
  explicit EventList(int rank) : rank_(rank) {
    name("process_name", kStepTrack, fmt::format("rank {}", rank));
    name("thread_name", kStepTrack, "step");
    for (const Queue queue : {Queue::compute, Queue::comm, Queue::host, Queue::copy, Queue::io})
      name("thread_name", track_of(queue), std::string(name_of(queue)));
    name("thread_name", kWaitTrack, "waiting");
  }

  void add(int track, std::string_view what, const TimeSpan& span, const std::string& arguments) {
    if (span.size() <= 0) return;
    fmt::format_to(
        std::back_inserter(text_),
        R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":"{}","args":{{{}}}}},)"
        "\n",
        rank_, track, static_cast<double>(span.begin_ns) / 1e3,
        static_cast<double>(span.size()) / 1e3, what, arguments);
  }
  std::string take() { return std::move(text_); }

 private:
  void name(std::string_view kind, int track, const std::string& value) {
    fmt::format_to(std::back_inserter(text_),
                   R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}},)"
                   "\n",
                   rank_, track, kind, value);
  }

  int rank_;
  std::string text_;
};

std::string events_of(const std::vector<StepTrace>& steps, int rank) {
  EventList events(rank);
  for (const StepTrace& step : steps) {
    const Plan& plan = *step.plan;
    const StepSplit split = split_of(step);
    events.add(kStepTrack, fmt::format("step {}", step.step), step.whole,
               fmt::format(R"("compute_ms":{:.3f},"exposed_comm_ms":{:.3f},"other_ms":{:.3f})",
                           split.compute * 1e3, split.exposed_comm * 1e3, split.other * 1e3));
    for (size_t i = 0; i < step.issues.size(); ++i) {
      const Instruction& op = instruction_of(plan, i);
      events.add(track_of(queue_of(plan.program, op)),
                 fmt::format("{} {}", name_of(op.op), plan.program.group_name(op)), step.issues[i],
                 fmt::format(R"("micro_batch":{})", plan.order[i].micro));
    }
    for (const TimeSpan& wait : step.waits) events.add(kWaitTrack, "wait", wait, "");
  }
  return events.take();
}

// Returns the concatenated texts of all ranks, on every rank.
std::string gather_texts(std::string mine, Communicator& comm) {
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<double> sizes(ranks);
  const auto size = static_cast<double>(mine.size());
  comm.gather_values({&size, 1}, sizes);
  const auto longest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  mine.resize(longest, ' ');
  std::string all(longest * ranks, ' ');
  comm.all_gather({mine.data(), {static_cast<int64_t>(longest)}, DType::u8},
                  {all.data(), {static_cast<int64_t>(all.size())}, DType::u8})
      .wait();
  return all;
}

}  // namespace

void StepTrace::prepare(const Plan& traced) {
  plan = &traced;
  issues.assign(traced.order.size(), {});
  waits.assign(traced.order.size() + 1, {});
}

StepSplit split_of(const StepTrace& trace) {
  StepSplit split;
  for (size_t i = 0; i < trace.issues.size(); ++i) {
    const Instruction& op = instruction_of(*trace.plan, i);
    if (is_posted(op.op)) continue;
    const double seconds = static_cast<double>(trace.issues[i].size()) * 1e-9;
    (rule_of(op.op).queue == Queue::comm ? split.exposed_comm : split.compute) += seconds;
  }
  for (const TimeSpan& wait : trace.waits)
    split.exposed_comm += static_cast<double>(wait.size()) * 1e-9;
  split.other = static_cast<double>(trace.whole.size()) * 1e-9 - split.compute - split.exposed_comm;
  return split;
}

std::string trace_text(const std::vector<StepTrace>& steps, Communicator& comm) {
  std::string events = gather_texts(events_of(steps, comm.rank()), comm);
  if (comm.rank() != 0) return "";
  events.erase(events.find_last_of(','));  // the format has no comma after the last event
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events + "\n]}\n";
}

void write_trace(const std::string& path, const std::vector<StepTrace>& steps, Communicator& comm) {
  const std::string text = trace_text(steps, comm);
  if (comm.rank() == 0) write_file(file_to_replace(path), text);
}

}  // namespace dstrain
