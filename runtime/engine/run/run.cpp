#include "runtime/engine/run/run.h"

#include <fmt/core.h>

#include "runtime/core/cpu.h"
#include "runtime/engine/fit.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/engine/step/backend.h"
#include "runtime/plan/print.h"

namespace dstrain {
namespace {

RankPlan plan_of(const Job& job, int rank, int ranks_on_host) {
  return make_rank_plan(job, {rank, job.ranks}, *make_planning_library(job.device),
                        threads_per_rank(ranks_on_host > 0 ? ranks_on_host : job.ranks));
}

}  // namespace

RunOutcome train(const Job& job, const Dataset& dataset, RunContext& ctx) {
  Trainer trainer(job, dataset, ctx);
  trainer.load();
  return trainer.run();
}

int64_t planned_bytes(const Job& job, int ranks_on_host) {
  return plan_of(job, 0, ranks_on_host).memory.total();  // all ranks hold equal slices
}

std::string plan_text(const Job& job, int rank) {
  return plan_to_text(plan_of(job, rank, 0), fmt::format("rank {} of {}", rank, job.ranks)) + "\n" +
         changes_text(job);
}

std::string plan_json(const Job& job, int rank) {
  return plan_to_json(plan_of(job, rank, 0));
}

}  // namespace dstrain
