#include "runtime/engine/run/run.h"

#include "runtime/engine/run/trainer.h"

namespace dstrain {

RunOutcome train(const Job& asked, const Dataset& dataset, RunContext& ctx) {
  Job job = asked;
  std::vector<int> hosts;
  for (int r = 0; r < job.ranks; ++r) hosts.push_back(ctx.comm->host_of(r));
  settle_host_shards(job, hosts);
  Trainer trainer(job, dataset, ctx);
  trainer.load();
  return trainer.run();
}

}  // namespace dstrain
