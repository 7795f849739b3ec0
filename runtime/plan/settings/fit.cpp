#include "runtime/plan/settings/fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/optimizer_types.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/core/text.h"
#include "runtime/core/whole_pages.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/estimates/step_time.h"

namespace dstrain {
namespace {

constexpr int kMostHalvings = 4;
constexpr int64_t kPieces = 8;
constexpr int kMostPlannedRanks = 8;               // of a stage, where their memory differs
constexpr double kManyBytes = int64_t{256} << 20;  // from which pieces are worth a plan

struct Change {
  std::string settings;
  std::function<void(Job&)> apply;
};
using Choices = std::vector<Change>;

Choices stages(const Job& job) {
  Choices choices;
  for (int stage = job.zero_stage + 1; stage <= highest_stage(job) && job.state_ranks() > 1;
       ++stage)
    choices.push_back({fmt::format("--set zero_optimization.stage={}", stage), [stage](Job& j) {
                         if (j.reduce == usual_reduce(j.zero_stage)) j.reduce = usual_reduce(stage);
                         j.zero_stage = stage;
                       }});
  if (const Place place = place_of(job, 0); place.replicas_hold() && place.replicas() > 1)
    choices.push_back({"--set dstrain.sharding=FULL_SHARD", [](Job& j) { j.shards = {}; }});
  return choices;
}

Choices recomputes(const Job& job) {
  Choices choices;
  const RecomputeConfig every_layer{RecomputeMode::interval, 1};
  if (job.recompute.mode == RecomputeMode::none)
    choices.push_back({"--set dstrain.recompute=selective", [](Job& j) {
                         j.recompute = {RecomputeMode::selective, 0};
                       }});
  if (job.recompute != every_layer)
    choices.push_back({"--set dstrain.recompute=1", [=](Job& j) { j.recompute = every_layer; }});
  return choices;
}

Choices gathers(const Job& job) {
  if (!can_gather_again(job)) return {};
  return {{"--set dstrain.gather_again=true", [](Job& j) { j.gather_again = GatherAgain::on; }}};
}

Choices micro_batches(const Job& job) {
  Choices choices;
  if (job.model.family().batch > 0) return choices;
  BatchConfig batch = job.batch;
  for (int i = 0; i < kMostHalvings && batch.micro_batch % 2 == 0; ++i) {
    batch.micro_batch /= 2;
    batch.accumulation *= 2;
    Job changed = job;
    changed.batch = batch;
    if (!divides_among_ranks(changed)) break;
    choices.push_back({fmt::format("--set train_micro_batch_size_per_gpu={} --set "
                                   "gradient_accumulation_steps={}",
                                   batch.micro_batch, batch.accumulation),
                       [batch](Job& j) { j.batch = batch; }});
  }
  return choices;
}

Choices pieces(const Job& job) {
  const ModelMeasures model = job.model.measures();
  const auto many = [&](double elements) {
    return elements * static_cast<double>(job.batch.micro_batch * size_of(job.dtype)) >= kManyBytes;
  };
  const Change loss{fmt::format("--set dstrain.loss_chunks={}", kPieces),
                    [](Job& j) { j.loss_chunks = kPieces; }};
  const Change mlp{fmt::format("--set dstrain.mlp_chunks={}", kPieces),
                   [](Job& j) { j.mlp_chunks = kPieces; }};
  Choices choices;
  const bool divides_loss = model.divides_loss && !job.objective.has_pairs();
  if (job.loss_chunks < kPieces && divides_loss && many(model.logits)) choices.push_back(loss);
  if (job.mlp_chunks < kPieces && many(model.activations)) choices.push_back(mlp);
  if (choices.size() == 2)
    choices.push_back({loss.settings + " " + mlp.settings,
                       [](Job& j) { j.loss_chunks = j.mlp_chunks = kPieces; }});
  return choices;
}

Choices offloads(const Job& job) {
  Choices choices;
  if (highest_stage(job) == 0 || freezes(job.optimizer)) return choices;
  if (limits_device(job) && job.offload.optimizer == OffloadTo::none)
    choices.push_back({"--set zero_optimization.offload_optimizer.device=cpu",
                       [](Job& j) { j.offload.optimizer = OffloadTo::cpu; }});
  if (limits_device(job) && job.offload.optimizer != OffloadTo::none && job.offload.ratio < 1)
    choices.push_back(
        {"--set zero_optimization.offload_optimizer.ratio=1", [](Job& j) { j.offload.ratio = 1; }});
  if (limits_device(job) && job.offload.parameters == OffloadTo::none && highest_stage(job) == 3)
    choices.push_back(
        {"--set zero_optimization.stage=3 --set "
         "zero_optimization.offload_optimizer.device=cpu --set "
         "zero_optimization.offload_param.device=cpu --set "
         "zero_optimization.stage3_max_reuse_distance=0",
         [](Job& j) {
           if (j.reduce == usual_reduce(j.zero_stage)) j.reduce = usual_reduce(3);
           j.zero_stage = 3;
           j.offload.optimizer = OffloadTo::cpu;
           j.offload.parameters = OffloadTo::cpu;
           j.gather.max_reuse_distance = 0;
         }});
  if (limits_device(job) && job.zero_stage == 3 && job.gather.max_reuse_distance > 0)
    choices.push_back({"--set zero_optimization.stage3_max_reuse_distance=0",
                       [](Job& j) { j.gather.max_reuse_distance = 0; }});
  return choices;
}

int64_t limited_bytes(const Job& job, const MemoryTable& memory) {
  return memory.total() + (limits_device(job) ? 0 : memory.total(Space::host));
}

// Returns whether ranks of a stage need different amounts of memory. Whole matrices are dealt out to the ranks that have
// slices; all else is divided equally.
bool ranks_differ(const Job& job) {
  return job.zero_stage > 0 && optimizer_rule(job.optimizer.kind).other_form == UpdateForm::matrix;
}

// Returns the plans of all stages for rank 0, and where ranks differ for others: for some of many, the last one among them.
std::vector<RankPlan> plans_for_memory(const Job& job, const PlanInputs& inputs,
                                       int most_ranks = kMostPlannedRanks) {
  std::vector<RankPlan> plans = draft_stage_plans(job, 0, inputs);
  const int ranks = ranks_differ(job) ? job.ranks / job.pipeline.stages : 1;
  const int step = std::max(1, (ranks - 1) / (most_ranks - 1));
  for (int rank = ranks - 1; rank > 0; rank -= step)
    std::ranges::move(draft_stage_plans(job, rank, inputs), std::back_inserter(plans));
  return plans;
}

class Planner {
 public:
  Planner(const Job& job, const PlanInputs& inputs)
      : job_(job), inputs_(inputs), seconds_(plan(job).seconds) {}

  Variant variant(const std::vector<const Change*>& changes) const {
    Job job = job_;
    std::vector<std::string_view> settings;
    for (const Change* change : changes) {
      change->apply(job);
      settings.push_back(change->settings);
    }
    const Planned planned = plan(job);
    return {fmt::format("{}", fmt::join(settings, " ")), planned.bytes, planned.seconds / seconds_};
  }

 private:
  struct Planned {
    int64_t bytes;
    double seconds;
  };
  Planned plan(const Job& job) const {
    Planned largest{0, 0};
    for (const RankPlan& stage : plans_for_memory(job, inputs_, 2)) {
      largest.bytes = std::max(largest.bytes, limited_bytes(job, stage.memory));
      largest.seconds = std::max(largest.seconds, step_seconds(stage.train, inputs_.rates));
    }
    return largest;
  }

  const Job& job_;
  const PlanInputs& inputs_;
  double seconds_;
};

// All choices of exactly `count` axes, with one change of each.
std::vector<std::vector<const Change*>> combinations(const std::vector<Choices>& axes,
                                                     size_t count) {
  std::vector<std::vector<const Change*>> all{{}};
  for (const Choices& choices : axes) {
    const size_t before = all.size();
    for (size_t i = 0; i < before; ++i)
      for (const Change& change : choices) {
        all.push_back(all[i]);
        all.back().push_back(&change);
      }
  }
  std::erase_if(all, [count](const auto& choice) { return choice.size() != count; });
  return all;
}

std::vector<Choices> axes_of(const Job& job) {
  return {stages(job),        recomputes(job), gathers(job),
          micro_batches(job), pieces(job),     offloads(job)};
}

// Returns which axes the changes are of.
std::vector<size_t> axes_of(const std::vector<const Change*>& changes,
                            const std::vector<Choices>& axes) {
  std::vector<size_t> list;
  for (size_t i = 0; i < axes.size(); ++i)
    for (const Change* change : changes)
      if (change >= axes[i].data() && change < axes[i].data() + axes[i].size()) list.push_back(i);
  return list;
}

// Returns advice to divide each sample among more ranks, each with a device of its own; empty where up to 8 times as many
// do not make it fit.
std::string shared_samples(const Job& job, int64_t offered, const PlanInputs& inputs) {
  if (!limits_device(job) || !job.model.family().reads_tokens() || freezes(job.optimizer) ||
      job.hook.kind != HookKind::none)
    return {};
  for (const int times : {2, 4, 8})
    for (const bool again : {false, true}) {
      Job more = job;
      more.ranks *= times;
      more.sequence_ranks *= times;
      more.sparse_gradients = false;  // sequence ranks send whole tables
      if (again) more.recompute = {RecomputeMode::interval, 1};
      if (!divides_among_ranks(more)) continue;
      int64_t bytes = 0;
      for (const RankPlan& stage : plans_for_memory(more, inputs, 2))
        bytes = std::max(bytes, limited_bytes(more, stage.memory));
      if (bytes <= offered)
        return fmt::format(
            "divide each sample among ranks, --num_gpus {} --sequence_parallel_size {}{} ({}), ",
            more.ranks, more.sequence_ranks, again ? " --set dstrain.recompute=1" : "",
            bytes_text(static_cast<double>(bytes)));
    }
  return {};
}

void cheapest_first(std::vector<Variant>& variants) {
  std::stable_sort(variants.begin(), variants.end(), [](const Variant& a, const Variant& b) {
    return a.slowdown != b.slowdown ? a.slowdown < b.slowdown : a.bytes < b.bytes;
  });
}

}  // namespace

PlannedMemory planned_memory(const Job& job, const PlanInputs& inputs) {
  return planned_memory(plans_for_memory(job, inputs));
}

PlannedMemory planned_memory(const Job& job, const std::vector<RankPlan>& stages,
                             const PlanInputs& inputs) {
  return ranks_differ(job) ? planned_memory(job, inputs) : planned_memory(stages);
}

PlannedMemory planned_memory(const std::vector<RankPlan>& stages) {
  PlannedMemory most;
  for (const RankPlan& stage : stages) {
    most.device = std::max(most.device, stage.memory.total());
    most.host = std::max(most.host, stage.memory.total(Space::host));
    most.disk = std::max(most.disk, stage.memory.total(Space::disk));
    int64_t device_pages = 0;
    for (const Region region : {Region::persistent, Region::registered, Region::transient})
      device_pages += whole_pages(stage.memory.region_bytes[static_cast<size_t>(region)]);
    most.device_pages = std::max(most.device_pages, device_pages);
    most.host_pages = std::max(most.host_pages, whole_pages(stage.memory.total(Space::host)));
  }
  return most;
}

int64_t planned_bytes(const Job& job, const PlanInputs& inputs) {
  const PlannedMemory memory = planned_memory(job, inputs);
  return memory.device + memory.host;
}

bool can_gather_again(const Job& job) {
  return job.tensor_ranks > 1 && job.gather_again != GatherAgain::on &&
         job.recompute.mode != RecomputeMode::interval;
}

int highest_stage(const Job& job) {
  if (job.hook.kind == HookKind::post_local_sgd || job.sparse_gradients) return 0;
  return std::min(optimizer_type_of(job.optimizer.kind).highest_stage,
                  job.hook.kind == HookKind::none ? 3 : 1);
}

bool limits_device(const Job& job) {
  return is_gpu(job.device) || job.device_memory > 0;
}

std::vector<Variant> single_changes(const Job& job, const PlanInputs& inputs) {
  const Planner planner(job, inputs);
  const std::vector<Choices> axes = axes_of(job);
  std::vector<Variant> variants;
  for (const auto& choice : combinations(axes, 1)) variants.push_back(planner.variant(choice));
  cheapest_first(variants);
  return variants;
}

std::vector<Variant> ways_to_fit(const Job& job, int64_t offered, const PlanInputs& inputs,
                                 size_t most) {
  const Planner planner(job, inputs);
  const std::vector<Choices> axes = axes_of(job);
  std::vector<Variant> fitting;
  for (size_t count = 1; count <= axes.size() && fitting.size() < most; ++count) {
    std::map<std::vector<size_t>, std::vector<Variant>> by_axes;
    for (const auto& choice : combinations(axes, count)) {
      const Variant variant = planner.variant(choice);
      if (variant.bytes <= offered) by_axes[axes_of(choice, axes)].push_back(variant);
    }
    for (auto& [changed, variants] : by_axes) {
      cheapest_first(variants);
      fitting.push_back(variants.front());
    }
  }
  cheapest_first(fitting);
  fitting.resize(std::min(fitting.size(), most));
  return fitting;
}

std::string advice_to_fit(const Job& job, int64_t offered, const PlanInputs& inputs) {
  std::vector<std::string> ways;
  const size_t most = limits_device(job) ? 4 : 3;  // with offload
  for (const Variant& v : ways_to_fit(job, offered, inputs, most))
    ways.push_back(fmt::format("{} ({})", v.settings, bytes_text(static_cast<double>(v.bytes))));
  const std::string_view context = job.model.family().context_key();
  if (ways.empty())
    return fmt::format(
        "no ZeRO stage, recompute{} or smaller micro-batch makes it fit: {}use a smaller "
        "model{}{}, "
        "or more machines",
        limits_device(job) ? ", offload of the optimizer" : "",
        shared_samples(job, offered, inputs), context.empty() ? "" : " or ", context);
  return fmt::format("to fit, add {}", fmt::join(ways, ", or "));
}

std::string lack_of_device_memory(const Job& job, const PlanInputs& inputs) {
  if (job.device_memory == 0) return {};
  return lack_of_device_memory(job, planned_memory(job, inputs), inputs);
}

std::string lack_of_device_memory(const Job& job, const PlannedMemory& planned,
                                  const PlanInputs& inputs) {
  if (job.device_memory == 0 || planned.device <= job.device_memory) return {};
  return fmt::format("a rank needs {} of its device, and --device_memory allows {}: {}",
                     bytes_text(static_cast<double>(planned.device)),
                     bytes_text(static_cast<double>(job.device_memory)),
                     advice_to_fit(job, job.device_memory, inputs));
}

std::string changes_text(const Job& job, const PlanInputs& inputs) {
  const std::vector<Variant> variants = single_changes(job, inputs);
  if (variants.empty()) return {};
  std::string text = "with other settings, cheapest in estimated time first\n";
  for (const Variant& v : variants)
    text += fmt::format("  {:>10}  {:.2f} x the time  {}\n",
                        bytes_text(static_cast<double>(v.bytes)), v.slowdown, v.settings);
  return text;
}

}  // namespace dstrain
