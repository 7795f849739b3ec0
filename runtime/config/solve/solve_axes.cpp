#include "runtime/config/solve/solve_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/config/family/divisibility.h"
#include "runtime/config/family/family.h"
#include "runtime/config/solve/solve_pipeline.h"
#include "runtime/config/solve/solve_training.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kStagesKey = "pipeline.stages", kSequenceKey = "sequence_parallel_size",
                           kTensorKey = "tensor_parallel.autotp_size",
                           kExpertKey = "expert_parallel.autoep_size";
constexpr size_t kMostDivisors = 16;  // that a message lists

// An axis of ranks that a model is divided among.
struct ModelAxis {
  std::string_view key;
  int64_t ranks = 1;
  std::string_view what;  // in messages: "tensor ranks"
};

// Returns the axes with more than one rank.
std::vector<ModelAxis> model_axes(const Job& job) {
  std::vector<ModelAxis> axes;
  for (const ModelAxis& axis : {ModelAxis{kStagesKey, job.pipeline.stages, "stages"},
                                {kSequenceKey, job.sequence_ranks, "sequence ranks"},
                                {kTensorKey, job.tensor_ranks, "tensor ranks"}})
    if (axis.ranks > 1) axes.push_back(axis);
  return axes;
}

// Returns " or a product of 1, 2 or 4" for the divisors of `ranks`; nothing where there are many.
std::string divisors_text(int64_t ranks, bool product) {
  std::vector<int64_t> divisors;
  for (int64_t n = 1; n <= ranks && divisors.size() <= kMostDivisors; ++n)
    if (ranks % n == 0) divisors.push_back(n);
  if (divisors.size() > kMostDivisors) return "";
  return fmt::format(", or {}{}", product ? "a product of " : "", alternatives(divisors));
}

// Reports ranks that are not a multiple of the product of the axes.
void report_ranks(const std::vector<ModelAxis>& axes, int64_t product, int64_t ranks,
                  const std::string& ranks_origin, Diagnostics& diagnostics) {
  std::string text;
  for (const ModelAxis& axis : axes)
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.ranks, axis.what);
  const bool several = axes.size() > 1;
  if (several) text += fmt::format(" = {}", product);
  diagnostics.error(
      axes.front().key,
      fmt::format("{} do not divide {} ({}) evenly: expected a multiple of {} ranks{}", text,
                  counted(ranks, "rank"), ranks_origin, product, divisors_text(ranks, several)));
}

}  // namespace

std::optional<int64_t> solve_axes(Job& job, Values& values, Diagnostics& diagnostics,
                                  std::optional<int64_t> ranks, const std::string& ranks_origin) {
  job.pipeline = solve_pipeline(values, diagnostics);
  job.sequence_ranks = static_cast<int>(values.integer(kSequenceKey));
  job.tensor_ranks = std::max(static_cast<int>(values.integer(kTensorKey)), 1);
  job.overlap_tensor = values.flag("tensor_parallel.tp_overlap_comm") && job.tensor_ranks > 1;
  if (values.flag("expert_parallel.enabled"))
    job.expert_ranks = static_cast<int>(values.integer(kExpertKey));
  values.text("dstrain.sequence_parallel");
  const std::vector<ModelAxis> axes = model_axes(job);
  int64_t product = 1;
  for (const ModelAxis& axis : axes) product *= axis.ranks;
  if (!ranks || diagnostics.stopped({kStagesKey, kSequenceKey, kTensorKey})) return std::nullopt;
  if (*ranks % product == 0) return *ranks / product;
  report_ranks(axes, product, *ranks, ranks_origin, diagnostics);
  return std::nullopt;
}

std::string data_ranks_origin(const Job& job, const std::string& ranks_origin) {
  std::string text = ranks_origin;
  for (const ModelAxis& axis : model_axes(job))
    text += fmt::format(" / {} {}", axis.ranks, axis.what);
  return text;
}

void check_axes(const Job& job, Diagnostics& diagnostics) {
  if (job.sequence_ranks == 1 && job.tensor_ranks == 1) return;
  const ModelFamily& family = job.model.family();
  const DividedSizes sizes = divided_sizes(job.model, job.batch.micro_batch);
  const DividingRanks ranks{job.sequence_ranks, job.tensor_ranks};
  const std::string heads =
      family.heads_key.empty() ? std::string(kModelSectionName) : model_path(family.heads_key);
  const std::string kv_heads =
      family.kv_heads_key.empty() ? heads : model_path(family.kv_heads_key);
  if (job.sequence_ranks > 1 && !family.reads_tokens())
    diagnostics.error(kSequenceKey, fmt::format("the samples of the {} have no tokens to divide: "
                                                "use 1",
                                                family.title));
  else if (job.sequence_ranks > 1 && family.undivided)
    diagnostics.error(kSequenceKey,
                      fmt::format("the samples of the {} are not divided among ranks: "
                                  "use 1",
                                  family.title));
  else if (const std::string why = sequence_problem(sizes, ranks); !why.empty())
    diagnostics.error(kSequenceKey, why, {kTensorKey, heads, kv_heads, "dstrain.data.seq_len"});
  if (job.tensor_ranks > 1 && family.undivided)
    diagnostics.error(kTensorKey, fmt::format("the layers of the {} are not divided among ranks: "
                                              "use ZeRO stages, pipeline.stages or offload",
                                              family.title));
  else if (const std::string why = tensor_problem(sizes, ranks); !why.empty())
    diagnostics.error(kTensorKey, why,
                      {kSequenceKey, heads, kv_heads, "train_micro_batch_size_per_gpu"});
}

void check_experts(const Job& job, Diagnostics& diagnostics, std::optional<int64_t> data_ranks,
                   const std::string& ranks_origin) {
  const int64_t ranks = job.expert_ranks;
  const ModelFamily& family = job.model.family();
  if (job.experts.bias_update > 0 && !family.has_choice_bias)
    diagnostics.error(
        "dstrain.experts.bias_update",
        fmt::format("the {} has no biases by which tokens choose experts: set it to 0",
                    family.title));
  if (job.experts.z_loss > 0 && family.experts_key.empty())
    diagnostics.error("dstrain.experts.z_loss",
                      fmt::format("the {} has no experts: set it to 0", family.title));
  if (ranks == 1) return;
  if (family.experts_key.empty())
    return diagnostics.error(
        kExpertKey,
        fmt::format("the {} has no experts to divide: remove expert_parallel", family.title));
  const int64_t experts = job.model.integer(family.experts_key);
  if (experts % ranks != 0)
    diagnostics.error(
        kExpertKey,
        fmt::format(
            "{} ranks do not divide the {} experts of a layer evenly: expected a divisor of {}",
            ranks, experts, experts),
        {model_path(family.experts_key)});
  if (data_ranks && *data_ranks % ranks != 0)
    diagnostics.error(
        kExpertKey,
        fmt::format("{} ranks do not divide the {} evenly ({}): expected a divisor of {}", ranks,
                    counted(*data_ranks, "data-parallel rank"),
                    data_ranks_origin(job, ranks_origin), *data_ranks));
}

bool divides_among_ranks(const Job& job) {
  const DividedSizes sizes = divided_sizes(job.model, job.batch.micro_batch);
  const DividingRanks ranks{job.sequence_ranks, job.tensor_ranks};
  return sequence_problem(sizes, ranks).empty() && tensor_problem(sizes, ranks).empty();
}

}  // namespace dstrain
