// Generation: one forward pass per new token over the last tokens, at most the model's context. There is a plan per
// power-of-two context length, so that short contexts do not cost as much as long ones. Attention is causal,
// so the padding after the last token changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/engine/forward/forward_model.h"
#include "runtime/plan/implementations.h"

namespace dstrain {

// The arguments of generate(): the trained model, the prompt, and how new tokens are chosen.
struct GenerateRequest {
  WeightsSource place;          // of the weights
  std::vector<int32_t> prompt;  // ids; at least one
  int64_t tokens = 0;           // at most
  std::vector<int32_t> stops;   // ids each of which ends the text
  double temperature = 1.0;     // 0: greedy
  int64_t top_k = 0;            // 0: all
  double top_p = 1.0;           // of the likeliest that together have this probability; 1: all
  uint64_t seed = 1337;
  int threads = 1;
  CheckDeviceBytes check_bytes = {};  // of each plan; empty: nothing is checked
};
// Calls `on_token` for each new token, in order, but not for one that ends the text. The same seed gives the same tokens.
void generate(const Job& job, const GenerateRequest& request,
              const Implementations& implementations, const std::function<void(int32_t)>& on_token);

}  // namespace dstrain
