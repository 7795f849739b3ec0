// Evaluation: the loss of a trained model on a whole file, by one process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "runtime/data/token_windows.h"
#include "runtime/engine/forward/forward_model.h"

namespace dstrain {

// Sums over all tokens that count in the loss and have one in front of them in their window or, of a window's first token,
// before it.
struct Evaluation {
  int64_t tokens = 0;            // that were predicted
  std::optional<int64_t> bytes;  // of their text; nothing where that is unknown
  double loss = 0;               // mean over the tokens, of several losses their weighted sum
  int64_t right = 0;             // tokens that have the largest logit, the first of equal ones

  double perplexity() const;
  std::optional<double> bits_per_byte() const;
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(tokens); }
};

// Receives the logits of the first window, row by row: (rows, vocabulary).
using TakeLogits = std::function<void(int64_t row, std::span<const float> logits)>;

// Measures `model`, whose program has losses, on all windows. Its vocabulary has `ids` tokens. Calls `take` for each token
// of the first window, if it is not empty. Throws RunError if the file changes
// meanwhile, UserError if none of its tokens counts.
Evaluation evaluate(ForwardModel& model, const TokenWindows& windows, int64_t ids,
                    const TakeLogits& take);

}  // namespace dstrain
