#include "launcher/input/fit_to_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "launcher/implementations.h"
#include "runtime/plan/cost/state_bytes.h"
#include "runtime/plan/settings/fit.h"
#include "runtime/plan/settings/open_settings.h"

namespace dstrain {
namespace {

constexpr std::string_view kOpenKeys[] = {"dstrain.gather_again", "dstrain.loss_chunks",
                                          "dstrain.mlp_chunks"};
constexpr std::string_view kWhy = "derived: the memory does not suffice ";

}  // namespace

bool fits(const Job& asked, const RankMemory& offered) {
  const Job job = job_of_host(asked, offered.ranks);
  const auto all = static_cast<double>(offered.bytes);
  // Planning a model that is far too large would take long.
  if (least_state_bytes(job).memory() * offered.ranks > all) return false;
  const PlanInputs inputs = plan_inputs(job, offered.ranks);
  const PlannedMemory plan = planned_memory(job, inputs);
  return memory_need(job, plan, inputs, offered.ranks, offered.processes).total() <= all &&
         (job.device_memory == 0 || plan.device <= job.device_memory);
}

bool settle_open(ConfigRequest& request, LoadedConfig& loaded, std::optional<RankMemory> offered,
                 Pieces pieces) {
  const Job& job = loaded.job;
  if (!offered || is_gpu(job.device)) return false;
  if (fits(job, *offered)) return true;
  Job open = job;
  if (pieces == Pieces::stay_open) {
    open.loss_chunks = std::max<int64_t>(open.loss_chunks, 1);
    open.mlp_chunks = std::max<int64_t>(open.mlp_chunks, 1);
  }
  std::optional<Job> settled =
      made_to_fit(open, [&](const Job& changed) { return fits(changed, *offered); });
  if (!settled) return false;
  if (settled->loss_chunks == open.loss_chunks) settled->loss_chunks = job.loss_chunks;
  if (settled->mlp_chunks == open.mlp_chunks) settled->mlp_chunks = job.mlp_chunks;
  for (const SettledSetting& setting : settled_between(job, *settled))
    request.sets.push_back(fmt::format("{}={}", setting.key, setting.value));
  apply_settled(loaded, *settled);
  return pieces == Pieces::settle;
}

void apply_settled(LoadedConfig& loaded, const Job& settled) {
  for (const SettledSetting& setting : settled_between(loaded.job, settled))
    loaded.settle(setting.key, setting.value, setting.why);
  loaded.job.gather_again = settled.gather_again;
  loaded.job.loss_chunks = settled.loss_chunks;
  loaded.job.mlp_chunks = settled.mlp_chunks;
}

std::vector<std::string> settled_lines(const std::string& path, const LoadedConfig& loaded) {
  std::vector<std::string> lines;
  for (const std::string_view key : kOpenKeys) {
    const auto setting = std::ranges::find(loaded.settings, key, &Setting::key);
    if (setting == loaded.settings.end() || !setting->origin.starts_with(kWhy)) continue;
    lines.push_back(fmt::format("{} leaves {} open: {}, as {}", path, key, setting->value,
                                setting->origin.substr(std::string_view("derived: ").size())));
  }
  return lines;
}

}  // namespace dstrain
