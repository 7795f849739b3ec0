#include "runtime/engine/run/run.h"

#include "runtime/core/log/log.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/plan/report/traffic.h"

namespace dstrain {

RunOutcome train(const Job& asked, const Dataset& dataset, RunContext& ctx) {
  Job job = asked;
  std::vector<int> hosts;
  for (int r = 0; r < job.ranks; ++r) hosts.push_back(ctx.comm->host_of(r));
  settle_host_shards(job, hosts);
  const Place place = place_of(job, ctx.comm->rank());
  if (const std::string warning = tensor_hosts_warning(place, hosts);
      !warning.empty() && ctx.comm->rank() == 0)
    log::warn("{}", warning);
  Trainer trainer(job, dataset, ctx);
  trainer.load();
  return trainer.run();
}

}  // namespace dstrain
