#include "runtime/engine/run/best_model.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace dstrain {
namespace {

// Adds values of validations after steps 1, 2, …; returns the step that is the best after each; 0: none is.
std::vector<int64_t> best_steps(BestModel& model, const std::vector<double>& values) {
  std::vector<int64_t> steps;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    const bool better = model.add(step, values[i]);
    steps.push_back(model.best() ? model.best()->step : 0);
    CHECK(better == (steps.back() == step));
  }
  return steps;
}

using Steps = std::vector<int64_t>;

TEST_CASE("the best validation is the first with the smallest value, or the largest") {
  const BestModelConfig less{.load_at_end = true};
  BestModel smallest(less);
  CHECK(best_steps(smallest, {3, 2, 2, 2.5, 1}) == Steps{1, 2, 2, 2, 5});
  CHECK(smallest.best()->value == 1);
  CHECK(smallest.best()->metric == "loss");
  const BestModelConfig more{.load_at_end = true, .metric = "accuracy", .greater_is_better = true};
  BestModel largest(more);
  CHECK(best_steps(largest, {0.1, 0.4, 0.4, 0.3}) == Steps{1, 2, 2, 2});
  CHECK_FALSE(largest.ends_run());
}

TEST_CASE("a value that is not finite is never the best") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                   infinity = std::numeric_limits<double>::infinity();
  const BestModelConfig config{.patience = 3};
  BestModel model(config);
  CHECK(best_steps(model, {nan, infinity, 5, -infinity}) == Steps{0, 0, 3, 3});
  CHECK(model.without_better() == 1);
  BestModel hopeless(config);
  CHECK(best_steps(hopeless, {nan, nan, nan}) == Steps{0, 0, 0});
  CHECK(hopeless.ends_run());
}

TEST_CASE("a run ends after as many validations in a row as its patience has that are no better") {
  const BestModelConfig config{.patience = 2};
  BestModel model(config);
  for (const double value : {3.0, 4.0, 2.0, 2.0}) {
    model.add(1, value);
    CHECK_FALSE(model.ends_run());
  }
  model.add(2, 2.5);
  CHECK(model.ends_run());
}

TEST_CASE(
    "patience counts what is better by no more than the threshold, and it is the best all the "
    "same") {
  const BestModelConfig config{.patience = 2, .threshold = 0.5};
  BestModel model(config);
  CHECK(best_steps(model, {3, 2.75}) == Steps{1, 2});
  CHECK(model.without_better() == 1);
  model.add(3, 2);
  CHECK(model.without_better() == 0);
  model.add(4, 1.5);  // better by the threshold itself
  model.add(5, 1.25);
  CHECK(model.best()->step == 5);
  CHECK(model.ends_run());
}

TEST_CASE(
    "a resumed run goes on from the best validation and its patience, by the same metric alone") {
  const BestModelConfig config{.patience = 2};
  BestModel before(config);
  before.add(1, 1);
  before.add(2, 2);
  BestModel after(config);
  after.resume(before.best());
  CHECK(after.best() == before.best());
  CHECK_FALSE(after.add(3, 1.5));
  CHECK(after.ends_run());
  const BestModelConfig other{.metric = "ema_loss", .patience = 2};
  BestModel another(other);
  another.resume(before.best());
  CHECK_FALSE(another.best());
  CHECK(another.without_better() == 0);
}

}  // namespace
}  // namespace dstrain
