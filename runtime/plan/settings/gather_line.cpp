#include "runtime/plan/settings/gather_line.h"

#include <fmt/format.h>

#include "runtime/config/text.h"
#include "runtime/core/text.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {
namespace {

// Returns "1.2 GB a rank and 30 MB sent a step".
std::string costs_text(Job job, GatherAgain gathers, int rank, const PlanInputs& inputs) {
  job.gather_again = gathers;
  const RankPlan plan = make_rank_plan(job, place_of(job, rank), inputs);
  return fmt::format("{} a rank and {} sent a step",
                     bytes_text(static_cast<double>(plan.memory.total())),
                     bytes_text(static_cast<double>(wire_bytes(plan.train))));
}

}  // namespace

std::string gather_line(const Job& job, int rank, const PlanInputs& inputs) {
  Job kept = job;
  kept.gather_again = GatherAgain::off;
  if (!can_gather_again(kept)) return {};
  return fmt::format(
      "rows that tensor ranks gather are {}: {} where they are kept, {} where they are gathered "
      "again (dstrain.gather_again)\n",
      job.gather_again == GatherAgain::on ? "gathered again in the backward pass"
                                          : "kept for the backward pass",
      costs_text(job, GatherAgain::off, rank, inputs),
      costs_text(job, GatherAgain::on, rank, inputs));
}

}  // namespace dstrain
