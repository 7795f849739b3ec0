#include "runtime/engine/forward/evaluate_samples.h"

#include <vector>

#include "runtime/engine/metrics/loss_means.h"

namespace dstrain {

SampleEvaluation evaluate_samples(ForwardModel& model, const Dataset& data) {
  const Program& program = model.program();
  const int64_t count = data.samples(Split::validation);
  std::vector<double> sums(program.losses.size());
  double weight = 0;
  for (int64_t sample = 0; sample < count; ++sample) {
    StepState state;
    StepContext step{.state = &state, .batch = {&data, Split::validation, sample, count}};
    model.run(step);
    for (size_t l = 0; l < sums.size(); ++l)
      sums[l] += first_value<double>(model.device(), model.tensor(program.losses[l].sum));
    weight += static_cast<double>(state.targets);
  }
  data.check_unchanged();
  return {.samples = count,
          .loss = program.whole_loss(sums) / weight,
          .metrics = mean_metrics(program, sums, weight)};
}

}  // namespace dstrain
