// WholePasses: a whole forward pass for each token, over the last tokens of one text.
#pragma once

#include <optional>
#include <vector>

#include "runtime/engine/forward/forward_model.h"
#include "runtime/engine/forward/next_token.h"

namespace dstrain {

// There is a plan per power-of-two context length, so that short contexts do not cost as much as long ones. Attention is
// causal, so the padding after the last token changes nothing.
class WholePasses final : public NextToken {
 public:
  // The caller must keep the arguments alive.
  WholePasses(const Job& job, const WeightsSource& place, const Implementations& implementations,
              int threads, CheckDeviceBytes check_bytes);

  void run(std::span<const Text> texts, const Take& take) override;
  int64_t slots() const override { return 1; }

 private:
  const Job& job_;
  const WeightsSource& place_;
  const Implementations& implementations_;
  int threads_;
  CheckDeviceBytes check_bytes_;
  std::optional<ForwardModel> model_;
  int64_t seq_len_ = 0;  // of its plan
  std::vector<int32_t> ids_;
  std::vector<float> row_;
};

}  // namespace dstrain
