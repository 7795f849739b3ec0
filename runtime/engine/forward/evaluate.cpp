#include "runtime/engine/forward/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Windows, and the targets of the one that was read last.
class KeptTargets : public Dataset {
 public:
  explicit KeptTargets(const TokenWindows& windows) : windows_(windows) {}

  int64_t samples(Split split) const override { return windows_.samples(split); }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    windows_.read(split, first, count, inputs);
    for (const InputTensor& input : inputs)
      if (input.role == InputRole::labels) {
        const auto* labels = input.tensor.as<const int32_t>();
        targets_.assign(labels, labels + input.tensor.elements());
      }
  }
  const Vocabulary& vocabulary() const override { return windows_.vocabulary(); }
  void check_unchanged() const override { windows_.check_unchanged(); }
  std::span<const int32_t> targets() const { return targets_; }

 private:
  const TokenWindows& windows_;
  mutable std::vector<int32_t> targets_;
};

// The logits of a window, and the tokens that they are to predict.
class Predictions {
 public:
  Predictions(const ForwardModel& model, int64_t ids)
      : model_(model), row_(static_cast<size_t>(ids)) {}

  // Returns how many of the window's targets have the largest logit. A model may have none for the last ones.
  int64_t right(std::span<const int32_t> targets) {
    const auto rows = static_cast<size_t>(model_.tensor(model_.program().logits).shape[0]);
    targets = targets.first(std::min(targets.size(), rows));
    if (!model_.device().is_host()) return right_of(targets, row_);
    // The logits are in the host's memory, and reading a row is a copy of it.
    std::vector<int64_t> sums(static_cast<size_t>(thread_count()));
    const auto parts = static_cast<int64_t>(sums.size()),
               all_rows = static_cast<int64_t>(targets.size());
    run_parts(parts, [&](int64_t part) {
      std::vector<float> row(row_.size());
      for (int64_t r = all_rows * part / parts; r < all_rows * (part + 1) / parts; ++r)
        sums[static_cast<size_t>(part)] += is_right(r, targets[static_cast<size_t>(r)], row);
    });
    int64_t all = 0;
    for (const int64_t sum : sums) all += sum;
    return all;
  }

 private:
  bool is_right(int64_t r, int32_t target, std::span<float> row) const {
    if (target < 0) return false;
    model_.read_logits(r, row);
    return largest(row) == target;
  }

  int64_t right_of(std::span<const int32_t> targets, std::span<float> row) const {
    int64_t count = 0;
    for (size_t r = 0; r < targets.size(); ++r)
      count += is_right(static_cast<int64_t>(r), targets[r], row);
    return count;
  }

  const ForwardModel& model_;
  std::vector<float> row_;
};

}  // namespace

double Evaluation::perplexity() const {
  return std::exp(loss);
}

std::optional<double> Evaluation::bits_per_byte() const {
  if (!bytes) return std::nullopt;
  return loss * static_cast<double>(tokens) / std::numbers::ln2 / static_cast<double>(*bytes);
}

Evaluation evaluate(ForwardModel& model, const TokenWindows& windows, int64_t ids,
                    const TakeLogits& take) {
  const Program& program = model.program();
  const TokenSource& source = windows.source();
  const int64_t count = windows.samples(Split::validation);
  if (program.logits == kNone)
    fail_user(
        "the loss of the model is no cross-entropy of classes, so it predicts no tokens that could "
        "be compared with those of {}",
        source.file().path());
  const int64_t length = model.tensor(program.logits).shape[0];
  Evaluation result{
      .tokens = 0, .bytes = source.bytes_of(1, source.tokens()), .loss = 0, .right = 0};
  std::vector<double> sums(program.losses.size());
  double weight = 0;  // of all windows: their targets, or what the model's own mean is taken over
  const KeptTargets kept(windows);
  Predictions predictions(model, ids);
  std::vector<float> row(static_cast<size_t>(ids));
  for (int64_t window = 0; window < count; ++window) {
    StepState state;
    StepContext step{.state = &state, .batch = {&kept, Split::validation, window, count}};
    model.run(step);
    for (size_t l = 0; l < sums.size(); ++l)
      sums[l] += first_value<double>(model.device(), model.tensor(program.losses[l].sum));
    weight += static_cast<double>(state.targets);
    result.tokens +=
        std::ranges::count_if(kept.targets(), [](int32_t target) { return target >= 0; });
    result.right += predictions.right(kept.targets());
    if (window > 0 || !take) continue;
    for (int64_t r = 0; r < std::min(length, source.tokens()); ++r) {
      model.read_logits(r, row);
      take(r, row);
    }
  }
  windows.check_unchanged();
  if (result.tokens == 0)
    fail_user("{}: none of the tokens counts in the loss, by {}.targets: give other data",
              source.file().path(), source.file().path());
  result.loss = program.whole_loss(sums) / weight;
  return result;
}

}  // namespace dstrain
