#include "runtime/plan/estimates/estimate.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/defaults.h"
#include "launcher/input/run_input.h"
#include "launcher/process/failure.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/plan/report/print.h"

namespace dstrain {
namespace {

constexpr std::string_view kZenFlow = "zero_optimization.zenflow";

constexpr const char* kDifference =
    R"(The figures differ because DeepSpeed's estimators count model states alone, by a formula in the
number of parameters: 16-bit weights and gradients, fp32 masters and Adam's moments, whatever the
configuration says. The plan has every buffer of the step in the configured precision and for the
configured optimizer: model states, and also activations, communication buffers, packed weights and
the workspaces of kernels. It is what a rank reserves, not an estimate.
)";

// Returns whether section zenflow, and nothing else, keeps the job from training.
bool only_zenflow_is_wrong(const std::vector<Verdict>& verdicts) {
  bool found = false;
  for (const Verdict& v : verdicts) {
    if (!is_error(v.state) || v.key == "zero_optimization") continue;
    if (!v.key.starts_with(kZenFlow)) return false;
    found = true;
  }
  return found;
}

// Returns the bytes of a rank of each stage of a pipeline; empty if there is one stage.
std::string stages_text(const std::vector<RankPlan>& stages, const RankPlan& largest) {
  if (stages.size() == 1) return {};
  std::string text;
  for (const RankPlan& plan : stages) {
    // The first one of those of a layer: its frozen parameters are a unit behind it.
    const std::vector<Unit>& units = plan.train.program.units;
    const auto first = std::ranges::min_element(units, {}, &Unit::first_sublayer);
    const auto last = std::ranges::max_element(units, {}, &Unit::first_sublayer);
    text += fmt::format("  stage {}: {} to {}, {}{}\n", plan.train.place.stage(), first->name,
                        last->name, bytes_text(static_cast<double>(plan.memory.total())),
                        &plan == &largest ? ", the most, as follows" : "");
  }
  return text;
}

}  // namespace

int run_estimate(const EstimateArguments& arguments) {
  ConfigRequest request = arguments.request;
  request.assume_vocabulary = true;
  const Cluster cluster{.nodes = arguments.nodes, .gpus_per_node = request.ranks.value_or(1)};
  request.ranks = cluster.nodes * cluster.gpus_per_node;
  if (cluster.nodes > 1) request.ranks_origin = "--num_gpus times --num_nodes";
  const bool zenflow = only_zenflow_is_wrong(check_config(request).verdicts);
  if (zenflow) request.sets.push_back(fmt::format("{}=null", kZenFlow));
  LoadedConfig loaded = load_config(request);
  for (const std::string& warning : loaded.warnings) log::warn("{}", warning);
  Job& job = loaded.job;
  settle_device(job, RunsWhere::nowhere);
  std::vector<int> hosts;
  for (int r = 0; r < job.ranks; ++r) hosts.push_back(r / static_cast<int>(cluster.gpus_per_node));
  settle_host_shards(job, hosts);
  const std::optional<AssumedVocabulary> assumed = settle_planned_vocabulary(job);
  for (const std::string& line : default_lines(request.path, loaded)) log::warn("{}", line);

  const int ranks_there = static_cast<int>(cluster.gpus_per_node);
  const PlanInputs inputs = plan_inputs(job, ranks_there);
  const std::vector<RankPlan> stages = make_stage_plans(job, 0, inputs);
  const std::string machine =
      machine_line(job, planned_memory(job, stages, inputs), inputs, ranks_there);
  const RankPlan& largest = *std::ranges::max_element(
      stages, {}, [](const RankPlan& plan) { return plan.memory.total(); });
  const ModelSize model = model_size(largest.train.program);
  const auto total = static_cast<double>(largest.memory.total());
  print_result(
      fmt::format("{}DeepSpeed's estimate for ZeRO-2\n{}\nDeepSpeed's estimate for ZeRO-3\n{}\n"
                  "dstrain's plan of each of {}: ZeRO stage {}{}, {}, micro-batch {}\n{}{}"
                  "  that is {:.3f}GB as DeepSpeed counts them, of 2^30 bytes\n{}\n{}",
                  assumed ? assumed->line() + "\n\n" : "", zero2_table(model, cluster),
                  zero3_table(model, cluster), counted(job.ranks, "rank"), job.zero_stage,
                  zenflow ? " without zenflow, which dstrain does not have" : "",
                  name_of(job.dtype), job.batch.micro_batch, stages_text(stages, largest),
                  memory_text(largest.memory), total / 0x1p30, machine, kDifference));
  return 0;
}

}  // namespace dstrain
