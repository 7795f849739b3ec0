#include "runtime/plan/estimates/offload_cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "runtime/core/text.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr int64_t kMostMicroBatches = int64_t{1} << 30;

// The seconds of one instruction, where it is done, and of the same on the device if it is a kernel.
struct Work {
  double device = 0, host = 0, copies = 0, disk = 0;
  void add(const Work& other) {
    device += other.device;
    host += other.host;
    copies += other.copies;
    disk += other.disk;
  }
  double transfers() const { return std::max(copies, disk); }
};

Work work_of(const Program& program, const Instruction& op, const MachineRates& rates) {
  const double seconds = instruction_seconds(program, op, rates);
  switch (rule_of(op.op).done_by) {
    case DoneBy::copies:
      return {.copies = seconds};
    case DoneBy::drives:
      return {.disk = seconds};
    default:
      return runs_on_host(program, op) ? Work{.host = seconds} : Work{.device = seconds};
  }
}

// The work of a step, by when it is done.
struct StepWork {
  Work each, last, end;  // of each micro-batch, besides of the last one, after the backward pass
  double update_on_device = 0;

  // Returns the seconds of a step of `micros` micro-batches over those without offload: at most 1.
  double speed(double micros) const {
    const double computing = micros * each.device + last.device + end.device;
    const double transfers = micros * each.transfers() + last.transfers();
    const double without = computing + update_on_device;
    const double with = std::max(computing, transfers) + std::max({end.copies, end.disk, end.host});
    return without / std::max(with, without);
  }
};

}  // namespace

double OffloadCost::end() const {
  return std::max({copies_at_end, disk_at_end, update_on_host});
}

OffloadCost offload_cost(const Plan& plan, const MachineRates& rates, int64_t micro_tokens) {
  const Program& program = plan.program;
  OffloadCost cost;
  StepWork work;
  for (const Issue& issue : plan.order) {
    const Instruction& op = program.instructions[static_cast<size_t>(issue.instruction)];
    const DoneBy done_by = rule_of(op.op).done_by;
    if (done_by != DoneBy::copies && done_by != DoneBy::drives) continue;
    const auto bytes = static_cast<double>(program.at(op.reads[0]).bytes());
    const Space from = program.space_of(op.reads[0]), to = program.space_of(op.writes[0]);
    (from == Space::disk   ? cost.disk_read
     : to == Space::disk   ? cost.disk_written
     : to == Space::device ? cost.to_device
                           : cost.to_host) += bytes;
  }
  for (const Instruction& op : program.instructions) {
    const Work one = work_of(program, op, rates);
    const bool ends = op.when == When::step_end;
    (ends ? work.end : op.when == When::every_micro ? work.each : work.last).add(one);
    if (ends && one.host > 0) work.update_on_device += kernel_seconds_on_device(program, op, rates);
  }
  const auto micros = static_cast<double>(plan.micro_batches);
  cost.computing = micros * work.each.device + work.last.device + work.end.device;
  cost.beside = micros * work.each.transfers() + work.last.transfers();
  cost.copies_at_end = work.end.copies;
  cost.disk_at_end = work.end.disk;
  cost.update_on_host = work.end.host;
  cost.update_on_device = work.update_on_device;
  cost.tokens = plan.micro_batches * micro_tokens;
  // The share of what is hidden or once a step grows with every micro-batch, so the speed does.
  int64_t low = 0, high = kMostMicroBatches;
  if (work.speed(static_cast<double>(high)) < kOffloadBreakEven) return cost;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (work.speed(static_cast<double>(middle)) < kOffloadBreakEven ? low : high) = middle;
  }
  cost.break_even_tokens = high * micro_tokens;
  return cost;
}

std::string offload_text(const OffloadCost& cost, const MachineRates& rates, DType dtype) {
  if (!cost.moves_anything()) return {};
  std::string text = fmt::format(
      "offload: a step copies {} to the host and {} to the device, reads {} from disk and writes "
      "{}\n",
      bytes_text(cost.to_host), bytes_text(cost.to_device), bytes_text(cost.disk_read),
      bytes_text(cost.disk_written));
  text += fmt::format(
      "  computing takes {:.3g} s, transfers beside it {:.3g} s; then copies {:.3g} s, disk {:.3g} "
      "s and the host's update {:.3g} s run beside each other ({:.3g} s on the device)\n",
      cost.computing, cost.beside, cost.copies_at_end, cost.disk_at_end, cost.update_on_host,
      cost.update_on_device);
  if (cost.break_even_tokens)
    text += fmt::format(
        "  break-even: from {} tokens a step on, {:.2f} or more of the speed without offload; this "
        "step has {}\n",
        *cost.break_even_tokens, kOffloadBreakEven, cost.tokens);
  else
    text += fmt::format(
        "  break-even: none with micro-batches of this size, which move more than computing hides; "
        "use larger ones (this step has {} tokens)\n",
        cost.tokens);
  return text + fmt::format("  assumed of a rank: {}\n", rates_text(rates, dtype));
}

}  // namespace dstrain
