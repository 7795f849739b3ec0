#include "runtime/plan/settings/fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/optimizer_types.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/core/text.h"
#include "runtime/core/whole_pages.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/estimates/step_time.h"
#include "runtime/plan/settings/choices.h"

namespace dstrain {
namespace {

constexpr int kMostPlannedRanks = 8;  // of a stage, where their memory differs

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
      : job_(job), inputs_(inputs), before_(plan(job)) {}

  Variant variant(const std::vector<const Change*>& changes) const {
    Job job = job_;
    std::vector<std::string_view> settings;
    for (const Change* change : changes) {
      change->apply(job);
      settings.push_back(change->settings);
    }
    const Planned planned = plan(job);
    return {fmt::format("{}", fmt::join(settings, " ")), planned.bytes,
            planned.seconds / before_.seconds, before_.bytes - planned.bytes};
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
  Planned before_;
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

// Returns "1.2 GB, saves 300 MB" of a variant.
std::string variant_bytes(const Variant& v) {
  const std::string bytes = bytes_text(static_cast<double>(v.bytes));
  if (v.saved <= 0) return bytes;
  return fmt::format("{}, saves {}", bytes, bytes_text(static_cast<double>(v.saved)));
}

// Returns the changes that round more and save memory, those that fit first; empty where there are none.
std::string more_rounding(const Job& job, int64_t offered, const PlanInputs& inputs) {
  std::vector<std::string> fitting, others;
  for (const RoundingVariant& v : rounding_changes(job, inputs)) {
    if (v.saved <= 0) continue;
    const bool fits = v.bytes <= offered;
    (fits ? fitting : others)
        .push_back(fmt::format("{} ({}{}; {})", v.settings, variant_bytes(v),
                               fits ? "" : ", not enough alone", v.cost));
  }
  std::ranges::move(others, std::back_inserter(fitting));
  return fmt::format("{}", fmt::join(fitting, ", or "));
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
  const std::vector<Choices> axes = choices_of(job);
  std::vector<Variant> variants;
  for (const auto& choice : combinations(axes, 1)) variants.push_back(planner.variant(choice));
  cheapest_first(variants);
  return variants;
}

std::vector<Variant> ways_to_fit(const Job& job, int64_t offered, const PlanInputs& inputs,
                                 size_t most) {
  const Planner planner(job, inputs);
  const std::vector<Choices> axes = choices_of(job);
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

std::vector<RoundingVariant> rounding_changes(const Job& job, const PlanInputs& inputs) {
  const std::vector<Rounding> all = roundings_of(job);
  std::vector<RoundingVariant> variants;
  if (all.empty()) return variants;
  const Planner planner(job, inputs);
  for (const Rounding& rounding : all)
    variants.push_back({planner.variant({&rounding.change}), rounding.cost});
  return variants;
}

std::string advice_to_fit(const Job& job, int64_t offered, const PlanInputs& inputs) {
  const std::string rounded = more_rounding(job, offered, inputs);
  std::vector<std::string> ways;
  const size_t most = limits_device(job) ? 4 : 3;  // with offload
  for (const Variant& v : ways_to_fit(job, offered, inputs, most))
    ways.push_back(fmt::format("{} ({})", v.settings, variant_bytes(v)));
  const std::string_view context = job.model.family().context_key();
  if (ways.empty())
    return fmt::format(
        "no ZeRO stage, recompute{} or smaller micro-batch makes it fit: {}{}use a smaller "
        "model{}{}, "
        "or more machines",
        limits_device(job) ? ", offload of the optimizer" : "",
        rounded.empty() ? "" : fmt::format("round more, {}, ", rounded),
        shared_samples(job, offered, inputs), context.empty() ? "" : " or ", context);
  return fmt::format("to fit, add {}{}", fmt::join(ways, ", or "),
                     rounded.empty() ? "" : ", or round more: " + rounded);
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
  std::string text;
  const auto add = [&text](const Variant& v, std::string_view cost) {
    const auto less = static_cast<double>(v.saved);
    text += fmt::format(
        "  {:>10}  {:>16}  {:.2f} x the time  {}{}\n", bytes_text(static_cast<double>(v.bytes)),
        fmt::format("{} {}", less < 0 ? "adds" : "saves", bytes_text(std::abs(less))), v.slowdown,
        v.settings, cost);
  };
  const std::vector<Variant> variants = single_changes(job, inputs);
  if (!variants.empty()) text = "with other settings, cheapest in estimated time first\n";
  for (const Variant& v : variants) add(v, "");
  const std::vector<RoundingVariant> rounding = rounding_changes(job, inputs);
  if (!rounding.empty()) text += "with more rounding, which changes the numbers\n";
  for (const RoundingVariant& v : rounding) add(v, fmt::format("  ({})", v.cost));
  return text;
}

}  // namespace dstrain
