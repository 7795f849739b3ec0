// NextToken: the logits of the token behind each of several texts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/config/job.h"
#include "runtime/engine/forward/forward_weights.h"
#include "runtime/plan/implementations.h"

namespace dstrain {

// Texts that are continued together.
struct TextSizes {
  int64_t texts = 1;   // at most, at a time
  int64_t prompt = 1;  // tokens of the longest text at its beginning
  int64_t tokens = 0;  // that are added to it
};

class NextToken {
 public:
  // A text: the place that it has kept since its beginning, and all of its tokens.
  struct Text {
    int64_t slot = 0;
    std::span<const int32_t> ids;
  };
  // Receives the logits of text `i`, a value for each token of the vocabulary.
  using Take = std::function<void(size_t i, std::span<const float> logits)>;

  virtual ~NextToken() = default;
  // Calls `take` once for each of `texts`, in any order. Each has a token at least, and a slot below slots() of its own. Of
  // a text that is longer than the model's context, the last tokens of that number count, from position 0 on. The logits
  // depend on the text alone, bit for bit.
  virtual void run(std::span<const Text> texts, const Take& take) = 0;
  // Returns how many texts may be continued at a time.
  virtual int64_t slots() const = 0;
};

// Returns the one for the job's device: on a processor with the keys and values of earlier tokens kept in slots; else a
// whole pass for each token, of one text at a time. `check_bytes` is called with the memory of each plan; where it throws,
// fewer texts at a time are tried. Throws UserError if the weights cannot be read.
std::unique_ptr<NextToken> make_next_token(const Job& job, const WeightsSource& place,
                                           const Implementations& implementations,
                                           const TextSizes& sizes, int threads,
                                           const CheckDeviceBytes& check_bytes);

}  // namespace dstrain
