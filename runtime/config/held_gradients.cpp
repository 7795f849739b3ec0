#include "runtime/config/held_gradients.h"

#include "runtime/config/sparse_gradients.h"

namespace dstrain {

bool holds_gradients_as_sent(const Job& job) {
  return job.batch.accumulation == 1 && is_16bit(job.dtype) && job.wire_dtype == job.dtype &&
         job.hook.kind == HookKind::none && !is_one_bit(job.optimizer.kind) &&
         !job.quantize.gradients && job.expert_ranks == 1 && !sends_token_rows(job);
}

}  // namespace dstrain
