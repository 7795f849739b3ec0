#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/defaults.h"
#include "launcher/input/name_patterns.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/machine.h"
#include "launcher/process/failure.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"
#include "runtime/plan/cost/nccl_memory.h"
#include "runtime/plan/estimates/offload_cost.h"
#include "runtime/plan/estimates/step_time.h"
#include "runtime/plan/pipeline/timeline.h"
#include "runtime/plan/report/print.h"
#include "runtime/plan/report/traffic.h"
#include "runtime/plan/settings/fit.h"
#include "runtime/plan/settings/gather_line.h"
#include "runtime/plan/settings/largest.h"

namespace dstrain {
namespace {

constexpr size_t kTimelineWidth = 100;  // characters

std::vector<const Plan*> train_plans(const std::vector<RankPlan>& stages) {
  std::vector<const Plan*> plans;
  for (const RankPlan& stage : stages) plans.push_back(&stage.train);
  return plans;
}

// Draws a step of the stages. Returns the picture, or a line that says which file it is in.
std::string draw_timeline(const Job& job, const std::vector<RankPlan>& stages,
                          const MachineRates& rates, const std::string& file) {
  const PipelineConfig& pipeline = job.pipeline;
  if (stages.size() == 1) return "one stage: nothing to draw\n";
  const int micro_batches = static_cast<int>(stages.front().train.micro_batches);
  const PipelineOrders orders =
      pipeline_orders(pipeline.schedule, pipeline.stages, pipeline.virtual_stages, micro_batches);
  const PipelineTimes times = pipeline_times(orders, train_plans(stages), rates);
  const std::string title = fmt::format("an estimated step: {} stages, {}", pipeline.stages,
                                        counted(micro_batches, "micro-batch", "es"));
  if (file.empty()) return timeline_text(title, orders, times, kTimelineWidth);
  write_file(file_to_replace(file), timeline_svg(title, orders, times));
  return fmt::format("the timeline of a step is in {}\n", file);
}

// Returns the line about an assumed vocabulary with which the text begins; empty without one.
std::string first_line_of(const std::optional<AssumedVocabulary>& assumed) {
  return assumed ? assumed->line() + "\n\n" : "";
}

// Returns the member `assumed` of the JSON.
Assumptions assumptions(const std::optional<AssumedVocabulary>& assumed) {
  if (!assumed) return {};
  return {{assumed->key, assumed->size}};
}

// Prints the largest models that fit into the memory that the command line describes.
void print_largest(const PlanArguments& arguments, const Job& job,
                   const std::optional<AssumedVocabulary>& assumed) {
  if (job.device_memory == 0)
    fail_user("dstrain plan --largest needs --device_memory: the bytes of each rank's device");
  const MachineMemory machine{
      .device = job.device_memory,
      .host = arguments.host_memory ? *arguments.host_memory : available_memory().bytes,
      .disk = arguments.disk};
  const std::vector<LargestModel> models = largest_models(job, machine, plan_inputs(job));
  print_result(arguments.json ? largest_json(models, job.model.family(), assumptions(assumed))
                              : first_line_of(assumed) + largest_text(models, job, machine));
}

// Returns what offload costs in a step; empty without offload.
std::string offload_lines(const Job& job, const Plan& plan, const MachineRates& rates) {
  const int64_t micro_tokens =
      job.rows_of(job.batch.micro_batch) * job.model.seq_len() * job.data_ranks();
  return offload_text(offload_cost(plan, rates, micro_tokens), rates, job.dtype);
}

}  // namespace

int run_plan(const PlanArguments& arguments) {
  ConfigRequest request = arguments.request;
  request.assume_vocabulary = true;
  settle_ranks(request);
  if (arguments.rank >= *request.ranks)
    fail_user("--rank: expected 0 to {} (number of ranks: {}), got {}", *request.ranks - 1,
              *request.ranks, arguments.rank);
  LoadedConfig loaded = load_config(request);
  for (const std::string& warning : loaded.warnings) log::warn("{}", warning);
  settle_device(loaded.job, RunsWhere::nowhere);
  settle_host_shards(loaded.job, pretended_hosts(loaded.job.ranks));
  check_name_patterns(loaded);
  const std::optional<AssumedVocabulary> assumed = settle_planned_vocabulary(loaded.job);
  const RankMemory offered{available_memory().bytes, loaded.job.ranks, local_ranks(loaded.job)};
  if (arguments.largest)
    settle_batch(request, loaded, offered);
  else
    settle_to_fit(request, loaded, offered);
  for (const std::string& line : default_lines(request.path, loaded)) log::warn("{}", line);
  if (arguments.largest) {
    print_largest(arguments, loaded.job, assumed);
    return 0;
  }
  const int rank = static_cast<int>(arguments.rank);
  const PlanInputs inputs = plan_inputs(loaded.job);
  const std::vector<RankPlan> stages = make_stage_plans(loaded.job, rank, inputs);
  const PlannedMemory planned = planned_memory(loaded.job, stages, inputs);
  const std::string machine = machine_line(loaded.job, planned, inputs, loaded.job.ranks);
  const RankPlan& plan = stages[static_cast<size_t>(place_of(loaded.job, rank).stage())];
  if (const std::string lack = lack_of_device_memory(loaded.job, planned, inputs); !lack.empty())
    log::warn("{}", lack);
  const std::vector<int> hosts = pretended_hosts(loaded.job.ranks);
  if (const std::string warning = tensor_hosts_warning(plan.train.place, hosts); !warning.empty())
    log::warn("{}", warning);
  if (arguments.json) {
    print_result(plan_to_json(plan, assumptions(assumed)));
  } else {
    std::string title = fmt::format("rank {} of {}", rank, loaded.job.ranks);
    const Place& place = plan.train.place;
    for (const auto& [axis, what] : {std::pair{Axis::pipe, "stage"},
                                     {Axis::expert, "expert rank"},
                                     {Axis::sequence, "sequence rank"},
                                     {Axis::tensor, "tensor rank"}})
      if (place.ranks_in(axis) > 1)
        title += fmt::format(", {} {} of {}", what, place.rank_in(axis), place.ranks_in(axis));
    std::string text = first_line_of(assumed) + plan_to_text(plan, title) + "\n" + machine + "\n";
    if (const std::string line = nccl_memory_text(loaded.job, place); !line.empty())
      text += line + "\n";
    if (const std::string line = codec_line(loaded.job, plan.train, hosts, inputs); !line.empty())
      text += line + "\n\n";
    if (const std::string line = gather_line(loaded.job, rank, inputs); !line.empty())
      text += line + "\n";
    if (const std::string kinds = step_kinds_text(loaded.job, plan); !kinds.empty())
      text += kinds + "\n";
    if (const std::string lines = offload_lines(loaded.job, plan.train, inputs.rates);
        !lines.empty())
      text += lines + "\n";
    text += changes_text(loaded.job, inputs);
    if (arguments.timeline)
      text += "\n" + draw_timeline(loaded.job, stages, inputs.rates, *arguments.timeline);
    print_result(text);
  }
  return 0;
}

}  // namespace dstrain
