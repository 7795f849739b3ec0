#include "runtime/engine/pairs/pair_count.h"

#include <algorithm>

#include "runtime/config/family/family.h"

namespace dstrain {
namespace {

// The documents of a row that have a target, in their order.
class AnswersOfRow {
 public:
  AnswersOfRow(const int32_t* labels, const int32_t* documents, int64_t tokens)
      : labels_(labels), documents_(documents), tokens_(tokens) {
    find();
  }
  bool done() const { return at_ == tokens_; }
  // Returns where the current one begins.
  int32_t begin() const { return documents_[at_]; }
  void next() {
    const int32_t last = begin();
    while (at_ < tokens_ && documents_[at_] == last) ++at_;
    find();
  }

 private:
  void find() {
    while (at_ < tokens_ && labels_[at_] < 0) ++at_;
  }

  const int32_t *labels_, *documents_;
  int64_t tokens_, at_ = 0;
};

}  // namespace

int64_t count_pairs(std::span<const InputTensor> inputs) {
  const auto labels = std::ranges::find(inputs, InputRole::labels, &InputTensor::role);
  const auto documents = std::ranges::find(inputs, InputRole::documents, &InputTensor::role);
  if (labels == inputs.end() || documents == inputs.end()) return 0;
  const int64_t samples = labels->tensor.shape[0],
                tokens = labels->tensor.elements() / (2 * samples);
  int64_t pairs = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const auto row = [&](int64_t number) {
      const int64_t at = (2 * s + number) * tokens;
      return AnswersOfRow(labels->tensor.as<const int32_t>() + at,
                          documents->tensor.as<const int32_t>() + at, tokens);
    };
    AnswersOfRow chosen = row(0), rejected = row(1);
    while (!chosen.done() && !rejected.done()) {
      const int32_t first = chosen.begin(), second = rejected.begin();
      if (first == second) ++pairs;
      if (first <= second) chosen.next();
      if (second <= first) rejected.next();
    }
  }
  return pairs;
}

BatchFeed::Weigh weigh_of(const Job& job) {
  if (job.objective.has_pairs() && job.data.packing == Packing::pack) return count_pairs;
  return job.model.family().weigh;
}

}  // namespace dstrain
