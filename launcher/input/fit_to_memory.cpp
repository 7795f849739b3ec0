#include "launcher/input/fit_to_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "launcher/implementations.h"
#include "runtime/plan/cost/state_bytes.h"
#include "runtime/plan/report/fit.h"

namespace dstrain {
namespace {

constexpr std::string_view kGatherKey = "dstrain.gather_again";
constexpr const char* kWhy = "the memory does not suffice to keep what tensor ranks gather";

}  // namespace

bool fits(const Job& job, const RankMemory& offered) {
  const auto all = static_cast<double>(offered.bytes);
  // Planning a model that is far too large would take long.
  if (least_state_bytes(job).memory() * offered.ranks > all) return false;
  const PlanInputs inputs = plan_inputs(job, offered.ranks);
  const PlannedMemory plan = planned_memory(job, inputs);
  return memory_need(job, plan, inputs, offered.ranks, offered.processes).total() <= all &&
         (job.device_memory == 0 || plan.device <= job.device_memory);
}

void settle_gathers(ConfigRequest& request, LoadedConfig& loaded,
                    std::optional<RankMemory> offered) {
  const Job& job = loaded.job;
  if (job.gather_again != GatherAgain::automatic || !can_gather_again(job)) return;
  if (!offered || job.device == "cuda" || fits(job, *offered)) return;
  Job again = job;
  again.gather_again = GatherAgain::on;
  if (!fits(again, *offered)) return;
  apply_gathers(loaded);
  request.sets.push_back(fmt::format("{}=true", kGatherKey));
}

void apply_gathers(LoadedConfig& loaded) {
  loaded.job.gather_again = GatherAgain::on;
  loaded.settle(std::string(kGatherKey), "true", kWhy);
}

std::string gathers_line(const std::string& path, const LoadedConfig& loaded) {
  const auto setting = std::ranges::find(loaded.settings, kGatherKey, &Setting::key);
  if (setting == loaded.settings.end() || !setting->origin.ends_with(kWhy)) return "";
  return fmt::format("{} leaves {} open: true, as {}", path, kGatherKey, kWhy);
}

}  // namespace dstrain
