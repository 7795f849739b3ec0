#include "runtime/optim/adam_corrections.h"

#include <cmath>

#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

float correction(double beta, int64_t t) {
  return static_cast<float>(1.0 - std::pow(beta, static_cast<double>(t)));
}

}  // namespace

AdamCorrections adam_corrections(const OptimizerConfig& optimizer, const Rate& rate,
                                 int64_t applied_steps) {
  if (!optimizer_rule(optimizer.kind).corrects_bias || !optimizer.bias_correction) return {};
  const int64_t t = applied_steps + 1;
  return {correction(rate.beta1, t), correction(rate.beta2, t)};
}

}  // namespace dstrain
