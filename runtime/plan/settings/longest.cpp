#include "runtime/plan/settings/longest.h"

#include <algorithm>
#include <numeric>

#include "runtime/config/family/family.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/plan/settings/open_settings.h"

namespace dstrain {
namespace {

constexpr int64_t kMultiple = 128;
constexpr int64_t kMostTokens = int64_t{1} << 28;

// Returns the job with one sample of so many tokens at a time on each rank.
Job with_sequence(Job job, int64_t tokens) {
  job.batch.micro_batch = 1;
  job.batch.train_batch = job.batch.accumulation * job.data_ranks();
  if (job.model.context() < tokens) job.model.set(job.model.family().context_key(), tokens);
  job.model.set_seq_len(tokens);
  return job;
}

}  // namespace

LongestSequence longest_sequence(const Job& job, const PlanInputs& inputs,
                                 const std::function<std::string(const PlannedMemory&)>& exceeded) {
  LongestSequence longest;
  if (!job.model.family().reads_tokens() || job.model.family().is_fixed) return longest;
  const Job settled = with_most_settled(job);
  const int64_t ranks = int64_t{job.sequence_ranks} * job.tensor_ranks;
  const int64_t step = std::lcm(kMultiple, ranks);
  // Returns what samples of so many steps exceed; the memory of those that fit is kept.
  const auto exceeds = [&](int64_t steps) {
    const Job changed = with_sequence(settled, steps * step);
    if (!divides_among_ranks(changed)) return std::string("ranks");
    const PlannedMemory memory = planned_memory(changed, inputs);
    std::string limit = exceeded(memory);
    if (limit.empty()) longest = {steps * step, memory, ""};
    return limit;
  };
  int64_t fits = 0, too_long = 1;
  std::string limit;
  while (too_long * step <= kMostTokens && (limit = exceeds(too_long)).empty()) {
    fits = too_long;
    too_long *= 2;
  }
  if (limit.empty()) return longest;
  while (too_long - fits > 1) {
    const int64_t middle = (fits + too_long) / 2;
    std::string over = exceeds(middle);
    if (over.empty()) {
      fits = middle;
    } else {
      too_long = middle;
      limit = std::move(over);
    }
  }
  longest.limit = limit;
  return longest;
}

}  // namespace dstrain
