#include "runtime/optim/adam_corrections.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("at the first update the corrections cancel the moments' own factors exactly") {
  const OptimizerConfig o;
  const AdamCorrections c = adam_corrections(o, {1e-3, 0.9, 0.999}, 0);
  CHECK(c.first == static_cast<float>(1.0 - 0.9));
  CHECK(c.second == static_cast<float>(1.0 - 0.999));
}

TEST_CASE("the corrections are those of update number applied + 1") {
  const OptimizerConfig o;
  const AdamCorrections c = adam_corrections(o, {1e-3, 0.5, 0.75}, 2);
  CHECK(c.first == 1.0f - 0.125f);
  CHECK(c.second == 1.0f - 0.421875f);
  const AdamCorrections late = adam_corrections(o, {1e-3, 0.9, 0.999}, 1'000'000);
  CHECK(late.first == 1.0f);
  CHECK(late.second == 1.0f);
}

TEST_CASE("the corrections use the betas of the schedule") {
  OptimizerConfig o;
  o.beta1 = 0.1;
  CHECK(adam_corrections(o, {1e-3, 0.5, 0.5}, 0).first == 0.5f);
}

TEST_CASE("a beta of zero corrects nothing") {
  CHECK(adam_corrections(OptimizerConfig{}, {1e-3, 0.0, 0.0}, 0).first == 1.0f);
}

TEST_CASE("no bias correction, and SGD, leave both divisors at one") {
  OptimizerConfig o;
  o.bias_correction = false;
  CHECK(adam_corrections(o, {1e-3, 0.9, 0.999}, 0).first == 1.0f);
  CHECK(adam_corrections(o, {1e-3, 0.9, 0.999}, 0).second == 1.0f);
  OptimizerConfig sgd;
  sgd.kind = OptimizerKind::sgd;
  CHECK(adam_corrections(sgd, {1e-3, 0.9, 0.999}, 0).second == 1.0f);
}

}  // namespace
}  // namespace dstrain
