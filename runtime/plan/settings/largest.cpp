#include "runtime/plan/settings/largest.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/text.h"
#include "runtime/plan/cost/state_bytes.h"
#include "runtime/plan/report/text_table.h"
#include "runtime/plan/settings/fit.h"
#include "runtime/plan/settings/open_settings.h"

namespace dstrain {
namespace {

constexpr int64_t kHeadSize = 128;
constexpr std::array<int64_t, 2> kChannelsOfALayer{128, 32};
// The most memory of a machine in all: plans have some ten times as many bytes, which must not exceed 63 bits.
constexpr double kMostBytes = 1e17;

// Settings, and the spaces in which they keep state.
struct Choice {
  std::string settings{};
  std::function<void(Job&)> apply{};
};

void stage_3(Job& job) {
  if (job.reduce == usual_reduce(job.zero_stage)) job.reduce = usual_reduce(3);
  job.zero_stage = 3;
  job.recompute = {RecomputeMode::interval, 1};
  job.gather.max_reuse_distance = 0;
}

// Each keeps less on the device than the one before.
std::vector<Choice> choices(const Job& searched, const MachineMemory& machine) {
  if (highest_stage(searched) < 3) return {{"", [](Job&) {}}};
  const std::string zero = "--set zero_optimization.";
  const std::string base =
      zero + "stage=3 " + zero + "stage3_max_reuse_distance=0 --set dstrain.recompute=1";
  const auto optimizer = [&](const std::string& to) {
    return " " + zero + "offload_optimizer.device=" + to;
  };
  const auto parameters = [&](const std::string& to) {
    return " " + zero + "offload_param.device=" + to;
  };
  const auto activations = [](const std::string& to) {
    return " --set dstrain.offload.activations=" + to;
  };
  const auto apply = [](OffloadTo state, OffloadTo params, OffloadTo kept) {
    return [=](Job& job) {
      stage_3(job);
      job.offload.optimizer = state;
      job.offload.optimizer_on = UpdateOn::host;
      job.offload.parameters = params;
      job.offload.max_in_cpu = 0;
      job.offload.activations = kept;
    };
  };
  using enum OffloadTo;
  std::vector<Choice> list{
      {"", [](Job&) {}},
      {base, apply(none, none, none)},
      {base + optimizer("cpu"), apply(cpu, none, none)},
      {base + optimizer("cpu") + parameters("cpu") + activations("cpu"), apply(cpu, cpu, cpu)},
  };
  if (machine.disk == 0) return list;
  const std::string all_in_cpu = " " + zero + "offload_param.max_in_cpu=0";
  list.push_back(
      {base + optimizer("nvme") + parameters("cpu") + activations("cpu"), apply(nvme, cpu, cpu)});
  list.push_back({base + optimizer("nvme") + parameters("nvme") + all_in_cpu + activations("cpu"),
                  apply(nvme, nvme, cpu)});
  return list;
}

// Returns what the ranks of a run exceed; empty if they fit.
std::string exceeded_by(const PlannedMemory& memory, const MachineMemory& machine, int ranks) {
  if (memory.device > machine.device) return "device";
  if (memory.host * ranks > machine.host) return "host";
  return memory.disk * ranks > machine.disk ? "disk" : "";
}

// Finds the largest model of one family with one choice of settings.
class Search {
 public:
  Search(Job job, const MachineMemory& machine, const PlanInputs& inputs, int64_t channels)
      : job_(std::move(job)), machine_(machine), inputs_(inputs), channels_(channels) {}

  LargestModel find(std::string settings) {
    int64_t fits = 0, too_large = 1;
    while (!certainly_exceeds(model_of(too_large))) too_large *= 2;
    LargestModel best{.settings = std::move(settings)};
    while (too_large - fits > 1) {
      const int64_t size = (fits + too_large) / 2;
      const ModelConfig model = model_of(size);
      PlannedMemory memory;
      if (certainly_exceeds(model) || !exceeded(memory = planned(model)).empty()) {
        too_large = size;
        continue;
      }
      fits = size;
      best.model = model;
      best.parameters = static_cast<int64_t>(model.measures().matrix_elements);
      best.memory = memory;
    }
    best.limit = exceeded(planned(model_of(too_large)));
    return best;
  }

 private:
  // Returns a model with `size` times the fewest heads that divide among the ranks and the configured heads of keys.
  ModelConfig model_of(int64_t size) const {
    ModelConfig model = job_.model;
    const ModelFamily& family = model.family();
    const int64_t ranks = int64_t{job_.tensor_ranks} * job_.sequence_ranks;
    const int64_t keys = family.kv_heads_key.empty() ? 0 : model.integer(family.kv_heads_key);
    const int64_t heads = size * std::lcm(ranks, std::max<int64_t>(keys, 1));
    const int64_t width = heads * kHeadSize;
    model.set(family.width_key, width);
    model.set(family.heads_key, heads);
    model.set_layers(std::max<int64_t>(1, width / channels_));
    return model;
  }

  PlannedMemory planned(const ModelConfig& model) {
    job_.model = model;
    return planned_memory(job_, inputs_);
  }

  // Returns whether the state of the model alone is more than all memory, for which no plan is needed.
  bool certainly_exceeds(const ModelConfig& model) {
    job_.model = model;
    const auto all =
        static_cast<double>(machine_.device * job_.ranks + machine_.host + machine_.disk);
    return least_state_bytes(job_).all() * job_.ranks > all;
  }

  std::string exceeded(const PlannedMemory& memory) const {
    return exceeded_by(memory, machine_, job_.ranks);
  }

  Job job_;
  const MachineMemory& machine_;
  const PlanInputs& inputs_;
  const int64_t channels_;
};

std::string count_text(int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  return n >= 1e12  ? fmt::format("{:.2f}T", n / 1e12)
         : n >= 1e9 ? fmt::format("{:.1f}B", n / 1e9)
                    : fmt::format("{:.0f}M", n / 1e6);
}

std::string space_text(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

std::string longest_text(const std::vector<LargestModel>& models, const Job& job) {
  if (!job.model.family().reads_tokens()) return "";
  std::vector<std::vector<std::string>> rows{
      {"settings", "tokens", "device", "host", "disk", "limit"}};
  for (size_t i = 0; i < models.size(); ++i) {
    const LongestSequence& l = models[i].longest;
    if (l.tokens == 0)
      rows.push_back({fmt::format("{}", i), "none", "", "", "", l.limit});
    else
      rows.push_back({fmt::format("{}", i), fmt::format("{}", l.tokens),
                      space_text(l.memory.device), space_text(l.memory.host),
                      space_text(l.memory.disk), l.limit});
  }
  return "the longest sequence of the configured model, one sample at a time on each rank\n" +
         text_table(rows, 5);
}

constexpr int64_t kMultiple = 128;
constexpr int64_t kMostTokens = int64_t{1} << 28;

// Returns the job with one sample of so many tokens at a time on each rank.
Job with_sequence(Job job, int64_t tokens) {
  job.batch.micro_batch = 1;
  job.batch.train_batch = job.batch.accumulation * job.data_ranks();
  if (job.model.context() < tokens) job.model.set(job.model.family().context_key(), tokens);
  job.model.set_seq_len(tokens);
  return job;
}

}  // namespace

std::vector<LargestModel> largest_models(const Job& job, const MachineMemory& machine,
                                         const PlanInputs& inputs) {
  const ModelFamily& family = job.model.family();
  if (family.heads_key.empty())
    fail_user(
        "--largest lets layers, width and heads grow together, and a {} has no heads: use "
        "another dstrain.model.type",
        family.title);
  const double bytes = static_cast<double>(machine.device) * static_cast<double>(job.ranks) +
                       static_cast<double>(machine.host) + static_cast<double>(machine.disk);
  if (bytes > kMostBytes)
    fail_user("--largest: {} of memory in all: expected up to {}; give less", bytes_text(bytes),
              bytes_text(kMostBytes));
  std::vector<LargestModel> models;
  for (const Choice& choice : choices(job, machine)) {
    Job changed = job;
    choice.apply(changed);
    LargestModel best;
    for (const int64_t channels : kChannelsOfALayer) {
      LargestModel found = Search(changed, machine, inputs, channels).find(choice.settings);
      if (best.limit.empty() || found.parameters > best.parameters) best = std::move(found);
    }
    best.longest = longest_sequence(changed, inputs, [&](const PlannedMemory& memory) {
      return exceeded_by(memory, machine, job.ranks);
    });
    models.push_back(std::move(best));
  }
  return models;
}

std::string largest_text(const std::vector<LargestModel>& models, const Job& job,
                         const MachineMemory& machine) {
  std::string text = fmt::format(
      "the largest {} that trains on {} with {} of a device each, {} of the host's memory "
      "and {} on disk in all\n",
      job.model.family().title, counted(job.ranks, "rank"), space_text(machine.device),
      space_text(machine.host), space_text(machine.disk));
  const ModelFamily& family = job.model.family();
  std::vector<std::vector<std::string>> rows{
      {"settings", "parameters", std::string(family.layers_key), std::string(family.width_key),
       "device", "host", "disk", "limit"}};
  for (size_t i = 0; i < models.size(); ++i) {
    const LargestModel& m = models[i];
    if (m.parameters == 0)
      rows.push_back({fmt::format("{}", i), "none", "", "", "", "", "", m.limit});
    else
      rows.push_back({fmt::format("{}", i), count_text(m.parameters),
                      fmt::format("{}", m.model.layers()), fmt::format("{}", m.model.width()),
                      space_text(m.memory.device), space_text(m.memory.host),
                      space_text(m.memory.disk), m.limit});
  }
  text += text_table(rows, 7) +
          "device, host, disk: of a rank; limit: what the next larger model exceeds\n";
  text += longest_text(models, job);
  for (size_t i = 0; i < models.size(); ++i)
    text += fmt::format("  {}: {}\n", i,
                        models[i].settings.empty() ? "the configuration" : models[i].settings);
  return text;
}

std::string largest_json(const std::vector<LargestModel>& models, const ModelFamily& family,
                         const Assumptions& assumed) {
  nlohmann::json list = nlohmann::json::array();
  for (const LargestModel& m : models) {
    list.push_back({{"settings", m.settings},
                    {"parameters", m.parameters},
                    {"device", m.memory.device},
                    {"host", m.memory.host},
                    {"disk", m.memory.disk},
                    {"limit", m.limit},
                    {"longest_sequence", m.longest.tokens},
                    {"longest_limit", m.longest.limit}});
    for (const std::string_view key : {family.layers_key, family.width_key, family.heads_key})
      list.back()[std::string(key)] = m.parameters == 0 ? 0 : m.model.integer(key);
    if (!assumed.empty()) list.back()["assumed"] = assumed;
  }
  return list.dump(2) + "\n";
}

LongestSequence longest_sequence(const Job& job, const PlanInputs& inputs,
                                 const std::function<std::string(const PlannedMemory&)>& exceeded) {
  LongestSequence longest;
  if (!job.model.family().reads_tokens() || job.model.family().is_fixed) return longest;
  const Job settled = with_most_settled(job);
  const int64_t ranks = int64_t{job.sequence_ranks} * job.tensor_ranks;
  const int64_t step = std::lcm(kMultiple, ranks);
  // Returns what samples of so many steps exceed; the memory of those that fit is kept.
  const auto exceeds = [&](int64_t steps) {
    const Job changed = with_sequence(settled, steps * step);
    if (!divides_among_ranks(changed)) return std::string("ranks");
    const PlannedMemory memory = planned_memory(changed, inputs);
    std::string limit = exceeded(memory);
    if (limit.empty()) longest = {steps * step, memory, ""};
    return limit;
  };
  int64_t fits = 0, too_long = 1;
  std::string limit;
  while (too_long * step <= kMostTokens && (limit = exceeds(too_long)).empty()) {
    fits = too_long;
    too_long *= 2;
  }
  if (limit.empty()) return longest;
  while (too_long - fits > 1) {
    const int64_t middle = (fits + too_long) / 2;
    std::string over = exceeds(middle);
    if (over.empty()) {
      fits = middle;
    } else {
      too_long = middle;
      limit = std::move(over);
    }
  }
  longest.limit = limit;
  return longest;
}

}  // namespace dstrain
