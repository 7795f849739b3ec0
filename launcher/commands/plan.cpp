#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/input/run_input.h"
#include "launcher/process/failure.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/plan/fit.h"
#include "runtime/plan/print.h"

namespace dstrain {

int run_plan(const PlanArguments& arguments) {
  ConfigRequest request = arguments.request;
  settle_ranks(request);
  if (arguments.rank >= *request.ranks)
    fail_user("--rank: expected 0 to {}, as there are {} ranks, got {}", *request.ranks - 1,
              *request.ranks, arguments.rank);
  LoadedConfig loaded = load_config(request);
  for (const std::string& warning : loaded.warnings) log::warn("{}", warning);
  settle_device(loaded.job, false);
  check_exclusions(loaded.job);
  settle_vocabulary(loaded.job);
  settle_batch(request, loaded, memory_of_each(loaded.job.ranks));
  if (loaded.default_batch) log::warn("{}", batch_line(request.path, loaded));
  const int rank = static_cast<int>(arguments.rank);
  const PlanInputs inputs = plan_inputs(loaded.job);
  const RankPlan plan = make_rank_plan(loaded.job, {rank, loaded.job.ranks}, inputs);
  if (arguments.json) {
    print_result(plan_to_json(plan));
  } else {
    print_result(plan_to_text(plan, fmt::format("rank {} of {}", rank, loaded.job.ranks)) + "\n" +
                 changes_text(loaded.job, inputs));
  }
  return 0;
}

}  // namespace dstrain
