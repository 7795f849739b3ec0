#include "runtime/plan/pipeline/zero_bubble.h"

#include <array>
#include <optional>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The tasks that stages have done. A task may start if its inputs were ready when the unit of time began.
class ZeroBubble {
 public:
  ZeroBubble(PipelineSchedule schedule, int stages, int micro_batches)
      : schedule_(schedule),
        stages_(stages),
        chunks_(chunks_of(schedule, 2)),
        micros_(micro_batches),
        done_(static_cast<size_t>(stages * chunks_)),
        due_(static_cast<size_t>(stages)),
        orders_(static_cast<size_t>(stages)) {}

  // Runs all tasks. `choose(*this, stage)` returns what the stage does next, or nothing.
  template <class Choose>
  std::vector<std::vector<StageTask>> run(Choose choose) {
    const int tasks = stages_ * chunks_ * micros_ * kPhases;
    for (int finished = 0; finished < tasks;) {
      std::vector<std::optional<StageTask>> unit;
      for (int stage = 0; stage < stages_; ++stage) unit.push_back(choose(*this, stage));
      const int before = finished;
      for (int stage = 0; stage < stages_; ++stage) {
        const std::optional<StageTask>& task = unit[static_cast<size_t>(stage)];
        if (!task) continue;
        orders_[static_cast<size_t>(stage)].push_back(*task);
        ++done_[part(stage, task->chunk)][static_cast<size_t>(task->phase)];
        if (task->phase == Phase::backward)
          due_[static_cast<size_t>(stage)].push_back(
              {Phase::weight_grad, task->chunk, task->micro});
        ++finished;
      }
      check(finished > before, "zero bubble: {} stages of {} micro-batches do not end", stages_,
            micros_);
    }
    return orders_;
  }

  // Returns how many micro-batches have passed a phase of the chunk.
  int done(Phase phase, int stage, int chunk) const {
    return done_[part(stage, chunk)][static_cast<size_t>(phase)];
  }
  // Returns the chunk's next forward or backward task, or nothing if its inputs are not there.
  std::optional<StageTask> next(Phase phase, int stage, int chunk) const {
    const int micro = done(phase, stage, chunk);
    if (micro >= ready(phase, part(stage, chunk))) return std::nullopt;
    return StageTask{phase, chunk, micro};
  }
  // Returns the weight gradients that have been due longest, if any are.
  std::optional<StageTask> oldest_weight_grad(int stage) const {
    size_t past = 0;
    for (int chunk = 0; chunk < chunks_; ++chunk)
      past += static_cast<size_t>(done(Phase::weight_grad, stage, chunk));
    const std::vector<StageTask>& due = due_[static_cast<size_t>(stage)];
    if (past == due.size()) return std::nullopt;
    return due[past];
  }

 private:
  size_t part(int stage, int chunk) const {
    return static_cast<size_t>(part_of(schedule_, stages_, stage, chunk));
  }
  // Returns how many micro-batches have what the forward or backward pass of the part needs.
  int ready(Phase phase, size_t part) const {
    const auto index = static_cast<size_t>(phase);
    if (phase == Phase::forward) return part == 0 ? micros_ : done_[part - 1][index];
    const bool last = part + 1 == done_.size();
    return last ? done_[part][static_cast<size_t>(Phase::forward)] : done_[part + 1][index];
  }

  PipelineSchedule schedule_;
  int stages_, chunks_, micros_;
  std::vector<std::array<int, kPhases>> done_;  // of every part, by phase
  std::vector<std::vector<StageTask>> due_;     // of every stage: weight gradients, done or not
  std::vector<std::vector<StageTask>> orders_;
};

}  // namespace

std::vector<std::vector<StageTask>> zb_h1_orders(int stages, int micro_batches) {
  const auto choose = [stages](const ZeroBubble& b, int s) {
    const int forward = b.done(Phase::forward, s, 0);
    const bool room = forward - b.done(Phase::backward, s, 0) < stages - s &&
                      forward - b.done(Phase::weight_grad, s, 0) < stages;
    if (const auto task = b.next(Phase::forward, s, 0); task && room) return task;
    if (const auto task = b.next(Phase::backward, s, 0)) return task;
    return b.oldest_weight_grad(s);
  };
  return ZeroBubble(PipelineSchedule::zb_h1, stages, micro_batches).run(choose);
}

std::vector<std::vector<StageTask>> zb_v_orders(int stages, int micro_batches) {
  const auto choose = [stages](const ZeroBubble& b, int s) {
    for (const int chunk : {1, 0})
      if (const auto task = b.next(Phase::backward, s, chunk)) return task;
    int held = 0;
    for (const int chunk : {0, 1})
      held += b.done(Phase::forward, s, chunk) - b.done(Phase::weight_grad, s, chunk);
    for (const int chunk : {1, 0})
      if (const auto task = b.next(Phase::forward, s, chunk); task && held < 2 * stages - 1 + chunk)
        return task;
    return b.oldest_weight_grad(s);
  };
  return ZeroBubble(PipelineSchedule::zb_v, stages, micro_batches).run(choose);
}

}  // namespace dstrain
