#include "runtime/engine/forward/whole_passes.h"

#include <algorithm>
#include <utility>

#include "runtime/config/family/family.h"

namespace dstrain {
namespace {

constexpr int64_t kShortestPlan = 64;

}  // namespace

WholePasses::WholePasses(const Job& job, const WeightsSource& place,
                         const Implementations& implementations, int threads,
                         CheckDeviceBytes check_bytes)
    : job_(job),
      place_(place),
      implementations_(implementations),
      threads_(threads),
      check_bytes_(std::move(check_bytes)),
      row_(static_cast<size_t>(job.model.vocabulary())) {}

void WholePasses::run(std::span<const Text> texts, const Take& take) {
  const int64_t context = job_.model.context();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::span<const int32_t> ids =
        texts[i].ids.last(std::min(texts[i].ids.size(), static_cast<size_t>(context)));
    const auto length = static_cast<int64_t>(ids.size());
    int64_t seq_len = std::max(seq_len_, std::min(kShortestPlan, context));
    while (seq_len < length) seq_len = std::min(2 * seq_len, context);
    if (!model_ || seq_len != seq_len_) {
      model_.reset();  // texts only grow, so a shorter plan is not needed again
      model_.emplace(job_, place_, implementations_, seq_len, ForwardModel::Ends::with_logits,
                     threads_, check_bytes_);
      seq_len_ = seq_len;
    }
    ids_.assign(static_cast<size_t>(seq_len), 0);
    std::ranges::copy(ids, ids_.begin());
    StepState state;
    const std::span<const int32_t> input = ids_;
    StepContext step{.state = &state, .inputs = {&input, 1}};
    model_->run(step);
    model_->read_logits(length - 1, row_);
    take(i, row_);
  }
}

}  // namespace dstrain
