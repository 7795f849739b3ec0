// The optimizers that runs on several ranks are compared with.
#pragma once

#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

// Returns every optimizer but AdamW, which the other tests use, with weight decay where `decay` is not 0.
inline std::vector<OptimizerConfig> other_optimizers(double decay) {
  OptimizerConfig adam{.weight_decay = decay, .decoupled_decay = false};
  OptimizerConfig sgd = adam, adagrad = adam, lion = adam, lamb = adam, muon = adam,
                  adam_8bit = adam, lion_8bit = adam;
  sgd.kind = OptimizerKind::sgd;
  sgd.momentum = 0.9;
  adagrad.kind = OptimizerKind::adagrad;
  adagrad.lr = 1e-2;
  adagrad.eps = 1e-10;
  lion.kind = OptimizerKind::lion;
  lion.lr = 1e-4;
  lamb.kind = OptimizerKind::lamb;
  muon.kind = OptimizerKind::muon;
  muon.lr = 2e-3;
  muon.momentum = 0.95;
  muon.beta2 = 0.95;
  muon.eps = 1e-10;
  adam_8bit.kind = OptimizerKind::adam_8bit;
  lion_8bit.kind = OptimizerKind::lion_8bit;
  lion_8bit.lr = 1e-4;
  adam_8bit.min_8bit_size = lion_8bit.min_8bit_size = 300;  // of matrices, not of biases
  return {adam, sgd, adagrad, lion, lamb, adam_8bit, lion_8bit, muon};
}

}  // namespace dstrain
