#include "runtime/optim/optimizers/one_bit.h"

#include <catch2/catch.hpp>
#include <vector>

namespace dstrain {
namespace {

// Returns the updates, counted from 1, up to `last` that are of a kind.
std::vector<int64_t> steps_of(const ZeroOneConfig& config, StepKind kind, int64_t last) {
  std::vector<int64_t> list;
  for (int64_t applied = 0; applied < last; ++applied)
    if (zero_one_step(config, applied) == kind) list.push_back(applied + 1);
  return list;
}
using Steps = std::vector<int64_t>;

TEST_CASE("0/1 Adam updates its second moment at intervals that double") {
  const ZeroOneConfig two{.var_freeze_step = 30, .var_update_scaler = 2};
  CHECK(steps_of(two, StepKind::whole_gradients, 40) == Steps{1, 2, 4, 6, 10, 14, 22, 30});
  const ZeroOneConfig three{.var_freeze_step = 30, .var_update_scaler = 3};
  CHECK(steps_of(three, StepKind::whole_gradients, 40) == Steps{1, 2, 3, 5, 7, 9, 13, 17, 21, 29});
  CHECK(steps_of(three, StepKind::gradient_signs, 12) == Steps{4, 6, 8, 10, 11, 12});
  // DeepSpeed's rule, multiples of the interval, is the same for its defaults as long as intervals are up to 16.
  Steps multiples;
  int64_t interval = 1, updates = 0;
  for (int64_t step = 1; step <= 512; ++step) {
    if (step % interval != 0) continue;
    multiples.push_back(step);
    if (++updates % 16 == 0) interval *= 2;
  }
  Steps ours = steps_of({}, StepKind::whole_gradients, 528);
  CHECK(ours.back() == 528);
  CHECK(multiples.back() == 512);
  ours.pop_back();
  multiples.pop_back();
  CHECK(ours == multiples);
}

TEST_CASE("0/1 Adam synchronises local steps at intervals that double up to a limit") {
  const ZeroOneConfig config{
      .var_freeze_step = 10, .local_step_scaler = 4, .local_step_clipper = 3};
  CHECK(steps_of(config, StepKind::regular, 30) == Steps{11, 12, 13, 14, 16, 18, 19, 22, 25, 28});
  CHECK(steps_of(config, StepKind::local, 22) == Steps{15, 17, 20, 21});
  const Steps open{1, 0, 0, 1, 2, 0};
  for (size_t i = 0; i < open.size(); ++i)
    CHECK(open_local_steps(config, 17 + static_cast<int64_t>(i)) == open[i]);
  CHECK(open_local_steps(config, 0) == 0);
  CHECK(open_local_steps(config, 10) == 0);
  const ZeroOneConfig always{.var_freeze_step = 1, .local_step_scaler = 1, .local_step_clipper = 1};
  CHECK(steps_of(always, StepKind::regular, 200).size() == 199);
  const ZeroOneConfig far{.var_freeze_step = 1,
                          .var_update_scaler = INT64_MAX,
                          .local_step_scaler = 1,
                          .local_step_clipper = INT64_MAX};
  CHECK(zero_one_step(far, 0) == StepKind::whole_gradients);
  CHECK(steps_of(far, StepKind::regular, 40) == Steps{2, 3});
}

}  // namespace
}  // namespace dstrain
