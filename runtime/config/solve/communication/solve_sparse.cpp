#include "runtime/config/solve/communication/solve_sparse.h"

#include <fmt/core.h>

#include "runtime/config/family/family.h"
#include "runtime/config/sparse_gradients.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kSparseGradients = "sparse_gradients";

// Says what travels, as far as the configuration alone decides it.
void explain_bytes(const Job& job, Diagnostics& diagnostics, bool ranks_known) {
  const auto text = [](int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  const TokenTable table = job.model.measures().token_table.value();
  if (table.frozen)
    return diagnostics.no_effect(kSparseGradients,
                                 "the token embedding is frozen: it has no gradient");
  if (table.shared)
    return diagnostics.no_effect(
        kSparseGradients, "the head is tied to the token embedding, whose gradient is dense then");
  if (ranks_known && job.state_ranks() == 1)
    return diagnostics.no_effect(kSparseGradients, "one rank: there are no gradients to send");
  if (!ranks_known || job.model.vocabulary() == 0)
    return diagnostics.explain(
        kSparseGradients,
        "rows of tokens or the table, whichever is fewer bytes: dstrain plan says which, when the "
        "number of ranks and the vocabulary are known");
  const SparseGradientBytes bytes = sparse_gradient_bytes(job);
  if (bytes.rows < bytes.table)
    return diagnostics.explain(
        kSparseGradients, fmt::format("a rank sends {} of rows a step instead of {} of the table",
                                      text(bytes.rows), text(bytes.table)));
  diagnostics.no_effect(kSparseGradients,
                        fmt::format("a rank sends the table, which takes {} a step: rows take {}",
                                    text(bytes.table), text(bytes.rows)));
}

}  // namespace

void solve_sparse(Job& job, Values& values, Diagnostics& diagnostics, bool ranks_known) {
  if (!values.flag(kSparseGradients) || diagnostics.stopped(kSparseGradients)) return;
  if (!job.model.measures().token_table) return;
  if (job.sequence_ranks > 1 || job.tensor_ranks > 1)
    return diagnostics.no_effect(
        kSparseGradients,
        "with sequence or tensor parallelism the token embedding's gradient travels as a table");
  job.sparse_gradients = true;
  explain_bytes(job, diagnostics, ranks_known);
}

}  // namespace dstrain
