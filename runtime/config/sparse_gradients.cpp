#include "runtime/config/sparse_gradients.h"

#include "runtime/config/family/family.h"

namespace dstrain {

SparseGradientBytes sparse_gradient_bytes(const Job& job) {
  const ModelMeasures m = job.model.measures();
  const TokenTable& table = m.token_table.value();
  const int64_t ranks = job.state_ranks(), micro_batches = job.batch.accumulation;
  const int64_t tokens =
      job.rows_of(job.batch.micro_batch) * job.model.seq_len() / job.sequence_ranks;
  const int64_t row = table.width * size_of(job.dtype) + size_of(DType::i32);
  const int64_t sums = job.reduce == ReduceMode::boundary ? 1 : micro_batches;
  return {
      .rows = micro_batches * (ranks - 1) * tokens * row,
      .table = sums * 2 * (ranks - 1) * table.rows * table.width * size_of(job.wire_dtype) / ranks};
}

bool sends_token_rows(const Job& job) {
  if (!job.sparse_gradients || job.zero_stage > 0 || job.pipeline.stages > 1 ||
      job.state_ranks() == 1)
    return false;
  if (const auto table = job.model.measures().token_table; !table || table->shared || table->frozen)
    return false;
  const SparseGradientBytes bytes = sparse_gradient_bytes(job);
  return bytes.rows < bytes.table;
}

}  // namespace dstrain
