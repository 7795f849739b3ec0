#include "runtime/plan/pipeline/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// One step of a pipeline, stage by stage.
class PipelineStep {
 public:
  PipelineStep(const PipelineOrders& orders, const std::vector<PhaseSeconds>& times,
               double message_time)
      : orders_(orders),
        times_(times),
        message_time_(message_time),
        stage_of_(times.size(), -1),
        taken_(times.size()),
        result_{std::vector<std::vector<TaskTime>>(orders.stages()), {}, 0, 0} {
    for (size_t stage = 0; stage < orders.stages(); ++stage) {
      for (const int part : orders.parts.at(stage)) {
        check(part >= 0 && index(part) < times.size() && stage_of_[index(part)] < 0,
              "part {} of stage {} of a pipeline of {} parts", part, stage, times.size());
        stage_of_[index(part)] = static_cast<int>(stage);
      }
      for (const StageTask& task : orders.tasks[stage]) {
        check(task.micro >= 0 && task.chunk >= 0 && index(task.chunk) < orders.parts[stage].size(),
              "{}: stage {} has no such task", task_text(task), stage);
        micros_ = std::max(micros_, task.micro + 1);
      }
    }
    check(std::ranges::count(stage_of_, -1) == 0, "a pipeline has a part without a stage");
    ends_.resize(times.size() * kPhases * index(micros_));
  }

  PipelineTimes run() {
    bool moved = true;
    while (moved && !result_.error) {
      moved = false;
      for (size_t stage = 0; stage < orders_.stages(); ++stage)
        while (!result_.error && advance(stage)) moved = true;
    }
    if (!result_.error) result_.error = waiting();
    if (!result_.error) result_.error = missing();
    if (result_.error)
      result_.tasks.clear();
    else
      measure();
    return result_;
  }

 private:
  // A task by the part that it works for.
  struct Work {
    Phase phase;
    int part;
    int micro;
  };

  static size_t index(int i) { return static_cast<size_t>(i); }

  std::optional<double>& end_of(const Work& work) {
    return ends_[(index(work.part) * kPhases + static_cast<size_t>(work.phase)) * index(micros_) +
                 index(work.micro)];
  }

  // Returns what must be done before the work begins.
  std::vector<Work> needs(const Work& work) const {
    const auto [phase, part, micro] = work;
    if (phase == Phase::weight_grad) return {{Phase::backward, part, micro}};
    std::vector<Work> list;
    if (phase == Phase::backward) list.push_back({Phase::forward, part, micro});
    const int sender = phase == Phase::forward ? part - 1 : part + 1;
    if (sender >= 0 && index(sender) < times_.size()) list.push_back({phase, sender, micro});
    return list;
  }

  const StageTask* next_slot(size_t stage) const {
    const size_t i = result_.tasks[stage].size();
    return i < orders_.tasks[stage].size() ? &orders_.tasks[stage][i] : nullptr;
  }
  Work work_of(size_t stage, const StageTask& task) const {
    return {task.phase, orders_.parts[stage][index(task.chunk)], task.micro};
  }

  // Does the next task of a stage. Returns false if the stage has none or it must wait.
  bool advance(size_t stage) {
    const StageTask* task = next_slot(stage);
    if (task == nullptr) return false;
    const Work work = work_of(stage, *task);
    std::vector<TaskTime>& tasks = result_.tasks[stage];
    double begin = tasks.empty() ? 0 : tasks.back().end;
    for (const Work& need : needs(work)) {
      const std::optional<double> end = end_of(need);
      if (!end) return false;
      const bool remote = stage_of_[index(need.part)] != static_cast<int>(stage);
      begin = std::max(begin, *end + (remote ? message_time_ : 0));
    }
    if (end_of(work)) {
      result_.error = fmt::format("{} is there twice", place(stage, *task));
      return false;
    }
    result_.error = out_of_turn(stage, *task);
    if (result_.error) return false;
    const double end = begin + times_[index(work.part)][static_cast<size_t>(work.phase)];
    tasks.push_back({begin, end});
    taken_[index(work.part)][static_cast<size_t>(work.phase)].push_back(work.micro);
    end_of(work) = end;
    return true;
  }

  // Returns the error of a task that takes another micro-batch than the part before it passes on next.
  std::optional<std::string> out_of_turn(size_t stage, const StageTask& task) {
    const Work work = work_of(stage, task);
    if (work.phase == Phase::weight_grad) return std::nullopt;
    const auto phase = static_cast<size_t>(work.phase);
    const size_t turn = taken_[index(work.part)][phase].size();
    for (const Work& need : needs(work)) {
      if (need.part == work.part) continue;
      const int sent = taken_[index(need.part)][phase][turn];
      if (sent != work.micro)
        return fmt::format("{} takes what stage {} sends of micro-batch {}", place(stage, task),
                           stage_of_[index(need.part)], sent);
    }
    return std::nullopt;
  }

  std::string place(size_t stage, const StageTask& task) const {
    return fmt::format("stage {}, task {}: {}", stage, result_.tasks[stage].size(),
                       task_text(task));
  }
  StageTask slot_of(const Work& work) const {
    const auto& parts = orders_.parts[index(stage_of_[index(work.part)])];
    const auto chunk = std::ranges::find(parts, work.part) - parts.begin();
    return {work.phase, static_cast<int32_t>(chunk), work.micro};
  }

  // Returns the error of stages that cannot end their order: first those that wait for what no stage does.
  std::optional<std::string> waiting() {
    std::vector<std::string> never, later;
    for (size_t stage = 0; stage < orders_.stages(); ++stage) {
      const StageTask* task = next_slot(stage);
      if (task == nullptr) continue;
      for (const Work& need : needs(work_of(stage, *task))) {
        if (end_of(need)) continue;
        const int sender = stage_of_[index(need.part)];
        const auto& order = orders_.tasks[index(sender)];
        const auto found = std::ranges::find(order, slot_of(need));
        const std::string text = fmt::format("{} waits for ever for {} of stage {}, ",
                                             place(stage, *task), task_text(slot_of(need)), sender);
        if (found == order.end())
          never.push_back(text + "which is missing");
        else
          later.push_back(text + fmt::format("its task {}", found - order.begin()));
      }
    }
    never.insert(never.end(), later.begin(), later.end());
    if (never.empty()) return std::nullopt;
    return fmt::format("{}", fmt::join(never, "; "));
  }

  // Returns the error of a part that does not do all phases of what part 0 does forward.
  std::optional<std::string> missing() {
    const bool split = std::ranges::any_of(
        taken_, [](const auto& t) { return !t[static_cast<size_t>(Phase::weight_grad)].empty(); });
    for (int part = 0; index(part) < times_.size(); ++part)
      for (const Phase phase : {Phase::forward, Phase::backward, Phase::weight_grad})
        for (int micro = 0; micro < micros_; ++micro) {
          if (phase == Phase::weight_grad && !split) continue;
          const Work work{phase, part, micro};
          const bool expected = end_of({Phase::forward, 0, micro}).has_value();
          if (expected && !end_of(work))
            return fmt::format("stage {}: {} is missing", stage_of_[index(part)],
                               task_text(slot_of(work)));
        }
    return std::nullopt;
  }

  void measure() {
    double work = 0;
    for (const std::vector<TaskTime>& tasks : result_.tasks)
      for (const TaskTime& task : tasks) {
        work += task.end - task.begin;
        result_.length = std::max(result_.length, task.end);
      }
    if (result_.length > 0)
      result_.bubble = 1 - work / (static_cast<double>(orders_.stages()) * result_.length);
  }

  const PipelineOrders& orders_;
  const std::vector<PhaseSeconds>& times_;
  double message_time_;
  int micros_ = 0;
  std::vector<int> stage_of_;                                 // of every part
  std::vector<std::array<std::vector<int>, kPhases>> taken_;  // micro-batches, as parts did them
  std::vector<std::optional<double>> ends_;                   // by part, phase and micro-batch
  PipelineTimes result_;
};

}  // namespace

PipelineOrders pipeline_orders(PipelineSchedule schedule, int stages, int virtual_stages,
                               int micro_batches) {
  PipelineOrders orders;
  for (int stage = 0; stage < stages; ++stage) {
    orders.tasks.push_back(stage_order(schedule, stages, virtual_stages, stage, micro_batches));
    std::vector<int>& parts = orders.parts.emplace_back();
    for (int chunk = 0; chunk < chunks_of(schedule, virtual_stages); ++chunk)
      parts.push_back(part_of(schedule, stages, stage, chunk));
  }
  return orders;
}

PipelineTimes run_orders(const PipelineOrders& orders, const std::vector<PhaseSeconds>& times,
                         double message_time) {
  return PipelineStep(orders, times, message_time).run();
}

std::vector<int> in_flight(const std::vector<StageTask>& order, int chunks) {
  const bool split = std::ranges::any_of(
      order, [](const StageTask& task) { return task.phase == Phase::weight_grad; });
  const Phase last = split ? Phase::weight_grad : Phase::backward;
  std::vector<int> held(static_cast<size_t>(chunks)), most(static_cast<size_t>(chunks));
  for (const StageTask& task : order) {
    const auto chunk = static_cast<size_t>(task.chunk);
    if (task.phase == Phase::forward) most[chunk] = std::max(most[chunk], ++held[chunk]);
    if (task.phase == last) --held[chunk];
  }
  return most;
}

std::string task_text(const StageTask& task) {
  static constexpr std::array<std::string_view, kPhases> kNames = {"forward", "backward",
                                                                   "weight gradients"};
  return fmt::format("{} of micro-batch {} in chunk {}", kNames[static_cast<size_t>(task.phase)],
                     task.micro, task.chunk);
}

}  // namespace dstrain
