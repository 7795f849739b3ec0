#include "runtime/engine/run/run_text.h"

#include <fmt/format.h>

#include "runtime/config/axes_text.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/text.h"
#include "runtime/engine/metrics/metrics_text.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// Floating-point operations per second of a CPU thread in matrix products, typical of a laptop.
constexpr double kUsualRate = 5e10;
constexpr double kLongStep = 10;  // seconds; the first line states the time of longer steps

std::string count_text(double n) {
  for (const auto& [unit, mark] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (n >= unit) return fmt::format("{:.3g}{}", n / unit, mark);
  return fmt::format("{:.0f}", n);
}

// Returns "124M parameters", and how many of them are frozen if any are.
std::string parameters_text(const Program& program) {
  double all = 0, frozen = 0;
  for (const Parameter& p : program.model_parameters()) {
    all += static_cast<double>(p.shape.elements());
    if (p.frozen) frozen += static_cast<double>(p.shape.elements());
  }
  const std::string text = count_text(all) + " parameters";
  return frozen > 0 ? fmt::format("{} ({} frozen)", text, count_text(frozen)) : text;
}

// Returns the floating-point operations of one rank in one step.
double operations_of(const Plan& plan) {
  double sum = 0;
  for (const Issue& issue : plan.order)
    sum += cost_of(plan.program, plan.program.instructions[static_cast<size_t>(issue.instruction)])
               .flops;
  return sum;
}

std::string beginning(const Job& job, int64_t done) {
  if (!job.resume.empty()) {
    if (done >= job.steps)
      return fmt::format("no step left: resumed after step {} of {}", done, job.steps);
    const std::string steps = done + 1 == job.steps
                                  ? fmt::format("step {}", job.steps)
                                  : fmt::format("steps {} to {}", done + 1, job.steps);
    return fmt::format("{}, resumed after step {}", steps, done);
  }
  const std::string weights =
      job.init_weights.empty() ? "fresh weights" : "the weights in " + job.init_weights;
  if (job.steps == 0) return fmt::format("no step: writes {} to {}", weights, job.output);
  return fmt::format("{} from {}", counted(job.steps, "step"), weights);
}

}  // namespace

std::string first_line(const Job& job, const Plan& train, int64_t done, int threads) {
  const BatchConfig& b = job.batch;
  const AxisRanks axes = axis_ranks(job);
  const bool divided = has_model_axes(axes);
  const Place& place = train.place;
  std::string line = fmt::format(
      "{} of {}, {}, ZeRO stage {}{}, {}{}; batch {} = micro-batch {} x accumulation {} "
      "x {}; {}",
      job.model.family().title, parameters_text(train.program), name_of(job.dtype), job.zero_stage,
      job.shards.ranks > 0 && place.replicas_hold() && place.ranks() > 1
          ? fmt::format(" in {} of {}", counted(place.replicas(), "replica"),
                        counted(place.shard_size(), "rank"))
          : "",
      counted(job.ranks, "rank"), divided ? fmt::format(" ({})", axes_text(axes)) : "",
      b.train_batch, b.micro_batch, b.accumulation,
      counted(axes.data, divided ? "data-parallel rank" : "rank"), beginning(job, done));
  if (job.device != DeviceChoice::cpu || done >= job.steps) return line;
  const double operations = operations_of(train);
  const double seconds = operations / (kUsualRate * threads);
  if (seconds > kLongStep)
    line += fmt::format("; a step is {} operations a rank, very roughly {}", count_text(operations),
                        duration_text(seconds));
  return line;
}

std::string seen_line(const Job& job, int64_t samples, int64_t first, int64_t steps) {
  const int64_t taken = first + steps * job.batch.train_batch;
  const double times = static_cast<double>(taken) / static_cast<double>(samples);
  const std::string all = counted(samples, "training sample");
  const std::string seen = times < 1    ? fmt::format("{:.3g}% of {} once", times * 100, all)
                           : times == 1 ? fmt::format("each of {} once", all)
                                        : fmt::format("each of {} {:.4g} times", all, times);
  return fmt::format("the run sees {}, in batches of {}{}", seen, job.batch.train_batch,
                     first > 0 ? fmt::format("; it goes on behind sample {}", first) : "");
}

std::string left_out_line(int64_t taken, int64_t samples, int64_t micro_batch) {
  if (taken == 0)
    return fmt::format(
        "no validation: it takes whole micro-batches of {}, and has {}: give more data or a larger "
        "dstrain.data.val_fraction or dstrain.eval_samples",
        counted(micro_batch, "sample"), counted(samples, "sample"));
  return fmt::format("validation takes {} of {}, whole micro-batches of {}", taken,
                     counted(samples, "sample"), micro_batch);
}

std::string patience_line(const BestModelConfig& best, int64_t step, int64_t steps) {
  return fmt::format(
      "no better {} in {}: the run ends after step {} of {} "
      "(dstrain.early_stopping_patience)",
      printable(best.metric), counted(best.patience, "validation"), step, steps);
}

std::string memory_line(const MemoryTable& memory) {
  const auto bytes = [&](Space space) {
    return bytes_text(static_cast<double>(memory.total(space)));
  };
  std::string line = bytes(Space::device);
  if (memory.total(Space::host) > 0)
    line += fmt::format(" and {} of the host's memory", bytes(Space::host));
  if (memory.total(Space::disk) > 0) line += fmt::format(" and {} on disk", bytes(Space::disk));
  return line;
}

std::string graph_line(int64_t graphs, int64_t nodes, int64_t launches) {
  return fmt::format("a step is {} with {} nodes, launched {}", counted(graphs, "graph"), nodes,
                     counted(launches, "time"));
}

}  // namespace dstrain
