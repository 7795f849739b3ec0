#include "runtime/engine/run/run.h"

#include "runtime/engine/run/trainer.h"

namespace dstrain {

RunOutcome train(const Job& job, const Dataset& dataset, RunContext& ctx) {
  Trainer trainer(job, dataset, ctx);
  trainer.load();
  return trainer.run();
}

}  // namespace dstrain
