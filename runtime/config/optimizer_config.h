// The optimizer of a job and its constants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dstrain {

// The update rule; Adam stands for AdamW too.
enum class OptimizerKind {
  adam,
  sgd,
  adagrad,
  lion,
  lamb,
  muon,
  one_bit_adam,
  zero_one_adam,
  one_bit_lamb,
  adam_8bit,
  lion_8bit
};
inline constexpr size_t kOptimizerKinds = 11;
// Returns whether an optimizer keeps state in 8 bits.
constexpr bool is_8bit(OptimizerKind kind) {
  return kind == OptimizerKind::adam_8bit || kind == OptimizerKind::lion_8bit;
}
// Returns whether ranks send signs with an optimizer, once a part of its state is frozen.
constexpr bool is_one_bit(OptimizerKind kind) {
  return kind == OptimizerKind::one_bit_adam || kind == OptimizerKind::zero_one_adam ||
         kind == OptimizerKind::one_bit_lamb;
}
// When ZeroOneAdam updates its second moment and when ranks synchronise, in updates.
struct ZeroOneConfig {
  int64_t var_freeze_step =
      100'000;  // after so many the second moment is frozen and local steps begin
  int64_t var_update_scaler =
      16;  // until then its interval doubles each time it was updated so often
  int64_t local_step_scaler =
      32'678;  // local steps, after which the interval of synchronising doubles
  int64_t local_step_clipper = 16;  // the longest such interval
  bool operator==(const ZeroOneConfig&) const = default;
};

// The constants that OneBitLamb has in addition to Lamb's. coeff_beta: the share of the average of trust ratios that
// stays in an update. Factor: what a frozen average is multiplied by. Its limits are factor_min and factor_max, and it
// may change by factor_threshold of itself in an update.
struct OneBitLambConfig {
  double coeff_beta = 0.9;
  double factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
  bool operator==(const OneBitLambConfig&) const = default;
};

// The optimizer and its constants. Adam and AdamW differ in decoupled_decay alone; with muon that is the decay of the
// parameters that Adam updates.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adam;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = true;
  bool bias_correction = true;
  double momentum = 0, dampening = 0;  // sgd; the momentum also of muon
  bool nesterov = false;
  double max_coeff = 10, min_coeff = 0.01;  // lamb: limits of the trust ratio
  bool eps_inside_sqrt = false;
  double lr_decay = 0;    // adagrad: update n has the rate lr / (1 + (n - 1) * lr_decay)
  double adam_lr = 3e-4;  // muon: of the parameters that it leaves to Adam, as betas and eps are
  bool gram = true;       // muon: it may iterate on the Gram matrix
  int64_t freeze_step = 100'000;  // 1-bit optimizers: updates before the second moment is frozen
  int64_t min_8bit_size = 4096;   // elements of the smallest tensor whose state is in 8 bits
  // Above 0: an exponential moving average of the weights is kept, of which an update leaves this share.
  double ema_decay = 0;
  ZeroOneConfig zero_one{};
  OneBitLambConfig one_bit_lamb{};
  bool operator==(const OptimizerConfig&) const = default;
};

}  // namespace dstrain
