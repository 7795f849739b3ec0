// Generation of text: prompts are continued token by token, several at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/engine/forward/next_token.h"
#include "runtime/engine/forward/sampling.h"
#include "runtime/plan/implementations.h"

namespace dstrain {

// The arguments of generate(): the trained model, the prompts, and how new tokens are chosen.
struct GenerateRequest {
  WeightsSource place;                        // of the weights
  std::vector<std::vector<int32_t>> prompts;  // ids; each has at least one
  int64_t samples = 1;                        // texts of each prompt
  int64_t tokens = 0;                         // new ones of a text, at most
  std::vector<int32_t> stops;                 // ids each of which ends the text
  Sampling sampling;
  int threads = 1;
  CheckDeviceBytes check_bytes = {};  // of each plan; empty: nothing is checked
};

// A text that is generated: that of a prompt.
struct GeneratedText {
  size_t prompt = 0;
  int64_t sample = 0;
};
// Receives a new token of a text, which is not one that ends it. Returns whether the text goes on.
using TakeToken = std::function<bool(const GeneratedText& text, int32_t id)>;

// Calls `on_token` for each new token of each text, in its order, and `on_end` once for each text behind its last one. Texts
// begin in the order of prompts and samples. A text is a function of its prompt, of the number of its sample and of the
// seed: whatever else is generated beside it.
void generate(const Job& job, const GenerateRequest& request,
              const Implementations& implementations, const TakeToken& on_token,
              const std::function<void(const GeneratedText&)>& on_end);

// Throws UserError if the model generates no text, or a prompt has no token or one that is not in the vocabulary.
void check_prompts(const Job& job, const GenerateRequest& request);

}  // namespace dstrain
