#include "runtime/plan/finish_plan.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// The instructions that are issued for every micro-batch, by phase and chunk.
using Bodies = std::map<std::pair<Phase, int32_t>, std::vector<int32_t>>;

// Returns the order of a step: the list expanded as the tasks and Instruction::when say. What a task receives is
// posted before the task in front of it, so that it can arrive meanwhile.
std::vector<Issue> expand(const Program& program, const std::vector<StageTask>& tasks,
                          int64_t micro_batches) {
  std::vector<Issue> order;
  Bodies receives, others;
  const auto count = static_cast<int32_t>(program.instructions.size());
  const auto op_at = [&](int32_t i) -> const Instruction& {
    return program.instructions[static_cast<size_t>(i)];
  };
  const auto issue_once = [&](When when) {
    for (int32_t i = 0; i < count; ++i)
      if (op_at(i).when == when) order.push_back({i, 0});
  };
  for (int32_t i = 0; i < count; ++i) {
    const Instruction& op = op_at(i);
    if (op.when == When::every_micro || op.when == When::last_micro)
      (receives_message(op) ? receives : others)[{op.phase, op.chunk}].push_back(i);
  }
  const auto issue = [&](Bodies& bodies, const StageTask& task) {
    const bool last = task.micro + 1 == micro_batches;
    for (const int32_t i : bodies[{task.phase, task.chunk}])
      if (last || op_at(i).when == When::every_micro) order.push_back({i, task.micro});
  };
  issue_once(When::step_begin);
  if (!tasks.empty()) issue(receives, tasks[0]);
  for (size_t s = 0; s < tasks.size(); ++s) {
    if (s + 1 < tasks.size()) issue(receives, tasks[s + 1]);
    issue(others, tasks[s]);
  }
  issue_once(When::step_end);
  return order;
}

// Puts the list into the order in which the instructions of a micro-batch are issued: passes add transfers and gathers beside
// layers of another phase. Memory is placed by the list where micro-batches repeat it.
void sort_by_phase(Program& program) {
  const auto turn = [](const Instruction& op) {
    constexpr int kLast = INT_MAX;
    if (op.when == When::step_begin) return -1;
    return op.when == When::step_end ? kLast : static_cast<int>(op.phase);
  };
  std::ranges::stable_sort(program.instructions, {}, turn);
}

}  // namespace

Plan finish_plan(Program program, const Job& job, Place place, std::vector<StageTask> tasks,
                 int64_t micro_batches, int threads) {
  sort_by_phase(program);
  Plan plan;
  plan.order = expand(program, tasks, micro_batches);
  plan.tasks = std::move(tasks);
  plan.program = std::move(program);
  plan.micro_batches = micro_batches;
  plan.place = place;
  plan.rank_order_sums = job.rank_order_sums || !is_gpu(job.device);
  plan.comm_channels = channels_of(place, job.pipeline.schedule);
  plan.channels = plan.first_other_channel();
  const auto add_channel = [&plan](DoneBy done_by, int32_t& channel) {
    for (Instruction& op : plan.program.instructions) {
      if (rule_of(op.op).done_by != done_by) continue;
      if (channel < 0) channel = plan.channels++;
      op.channel = channel;
    }
  };
  add_channel(DoneBy::copies, plan.copy_channel);
  add_channel(DoneBy::drives, plan.io_channel);
  plan.threads = threads;
  plan.master_dtype = job.master_dtype;
  plan.max_live_elements = job.gather.max_live_elements;
  return plan;
}

}  // namespace dstrain
