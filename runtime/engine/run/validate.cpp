// The part of Trainer that runs the model without training it: to find references before the first step, to validate the
// weights, and their averages where a run has them; and that ends a run with the best ones.
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/engine/metrics/loss_means.h"
#include "runtime/engine/pairs/reference_pass.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/plan/divide.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_retention.h"

namespace dstrain {
namespace {

// Names of metrics of a validation; those of the averages of the weights begin with kOfAverages.
constexpr std::string_view kLoss = "loss", kOfAverages = "ema_";

// The number of the first sample of a validation, for what its model draws: training has fewer.
constexpr int64_t kValidationSamples = int64_t{1} << 62;

}  // namespace

int64_t Trainer::validation_samples() const {
  const int64_t samples = std::min(job_.eval_samples, dataset_.samples(Split::validation));
  // The samples that would fill a micro-batch have no targets that could be left out of such losses.
  if (plans_.validate.program.loss_weight == LossWeight::targets) return samples;
  return samples - samples % job_.batch.micro_batch;
}

std::vector<float> Trainer::measure_log_probs(Split split, int64_t first, int64_t end) {
  const Plan& plan = plans_.validate;
  StepState state = state_;
  state.first_sample = kValidationSamples + job_.rows_of(first);
  StepContext context{.state = &state, .batch = {&dataset_, split, first, end}};
  validate_->run(context);
  if (plan.program.log_probs == kNone) return {};
  const Tensor sums = arenas_.tensor(plan, plan.program.log_probs);
  std::vector<float> values(static_cast<size_t>(sums.elements()));
  on_host(*backend_.device, sums, HostAccess::read, [&](int64_t begin, const Tensor& piece) {
    std::copy_n(piece.as<const float>(), piece.elements(), values.begin() + begin);
  });
  return values;
}

void Trainer::find_references() {
  if (!dataset_.references()) return;
  ReferencePass pass(job_, dataset_, *ctx_.comm, [this](Split split, int64_t first, int64_t end) {
    return measure_log_probs(split, first, end);
  });
  if (!pass.fill(state_.applied_steps == 0, [this] { return own_stop_signal() != 0; }))
    stop_signal_ = agreed_stop_signal();
  if (ctx_.slot) ctx_.slot->leave_instruction();
}

Trainer::Validated Trainer::measure_validation() {
  const Plan& plan = plans_.validate;
  const std::vector<int32_t> exchanges = count_collectives(plan);
  const bool needed = std::ranges::any_of(exchanges, [](int32_t n) { return n > 0; });
  const int64_t samples = validation_samples();
  const int64_t micro = job_.batch.micro_batch;
  StepState state = state_;
  // The sums of all batches are added in the order of the samples, so that the result does not depend on
  // the number of ranks.
  const std::vector<ProgramLoss>& losses = plan.program.losses;
  const bool first_part = place_.rank_in(Axis::tensor) == 0;
  double targets = 0;
  std::vector<double> sums(losses.size()), mine(losses.size() + 1),
      all(mine.size() * static_cast<size_t>(comm_.size()));
  for (int64_t first = 0; first < samples; first += micro * place_.ranks_in(kSampleAxes)) {
    std::ranges::fill(mine, 0.0);  // the losses of this stage, and on the last one the targets
    // A rank without samples in its batch runs too if others need its parameters or messages.
    const bool has_samples = first + place_.rank_in(kSampleAxes) * micro < samples;
    if (has_samples || needed) {
      // What a model draws follows from the sample, so that each validation draws the same, and training draws others.
      state.first_sample = kValidationSamples + job_.rows_of(first);
      StepContext context{.state = &state, .batch = {&dataset_, Split::validation, first, samples}};
      validate_->run(context);
      for (size_t l = 0; l < losses.size(); ++l)
        if (has_samples && losses[l].sum != kNone && (first_part || !losses[l].replicated))
          mine[l] = first_value<double>(*backend_.device, arenas_.tensor(plan, losses[l].sum));
      if (plan.program.last_loss() != kNone && first_part)
        mine.back() = static_cast<double>(state.targets);
    }
    comm_.gather_values(mine, all);
    for (size_t i = 0; i < all.size(); i += mine.size()) {
      for (size_t l = 0; l < sums.size(); ++l) sums[l] += all[i + l];
      targets += all[i + sums.size()];
    }
    output_.show_validation(state_.step, first, samples);
  }
  if (ctx_.slot) ctx_.slot->leave_instruction();
  return {.loss = plan.program.whole_loss(sums) / targets,
          .losses = mean_losses(plan.program, sums, targets),
          .metrics = mean_metrics(plan.program, sums, targets)};
}

bool Trainer::validate() {
  const bool groups = groups_differ(job_, state_.applied_steps).weights;
  if (groups) model_.use_average();
  Validated own = measure_validation();
  if (groups) model_.restore_own_weights();
  // Before the first update there is no average.
  if (job_.optimizer.ema_decay > 0 && state_.applied_steps > 0) {
    model_.exchange_averages();
    const Validated average = measure_validation();
    model_.exchange_averages();
    own.metrics.emplace_back(fmt::format("{}{}", kOfAverages, kLoss), average.loss);
    for (const auto& [name, value] : average.metrics)
      own.metrics.emplace_back(fmt::format("{}{}", kOfAverages, name), value);
  }
  double value = own.loss;
  for (const auto& [name, metric] : own.metrics)
    if (name == job_.best.metric) value = metric;
  output_.add_validation({.step = state_.step,
                          .samples = next_sample_,
                          .loss = own.loss,
                          .losses = std::move(own.losses),
                          .metrics = std::move(own.metrics)});
  return job_.best.used() && best_.add(state_.step, value);
}

void Trainer::check_metric() const {
  if (!job_.best.used()) return;
  if (!validates())
    fail_user(
        "dstrain.metric_for_best_model: no validation sample is measured: give "
        "dstrain.data.val_path, a larger dstrain.data.val_fraction or a larger "
        "dstrain.eval_samples, of which some models take whole micro-batches");
  std::vector<std::string> names{std::string(kLoss)};
  const std::vector<double> zeros(plans_.validate.program.losses.size());
  for (const auto& [name, value] : mean_metrics(plans_.validate.program, zeros, 1))
    names.push_back(name);
  if (job_.optimizer.ema_decay > 0)
    for (const std::string& name : std::vector(names))
      names.push_back(fmt::format("{}{}", kOfAverages, name));
  if (std::ranges::find(names, job_.best.metric) == names.end())
    fail_user("dstrain.metric_for_best_model: validations of this model have no {}: expected {}",
              printable(job_.best.metric), fmt::join(names, ", "));
}

void Trainer::load_best() {
  const std::optional<BestValidation>& best = best_.best();
  if (!best || best->step == state_.step) return;
  if (!output_.has_checkpoint(best->step)) {
    if (root())
      log::warn(
          "dstrain.load_best_model_at_end: the checkpoint of step {}, of the best validation, is "
          "not there: the weights are those of step {}",
          best->step, state_.step);
    return;
  }
  // --resume goes on from the run's last step, not from its best one.
  output_.save_last(progress(), job_.save_required);
  const bool groups = local_groups(job_) > 1;
  StateRegister everything = model_.everything({.weights = groups, .state = groups});
  TrainerScalars scalars;
  scalars.add_to(everything);
  load_checkpoint(checkpoint_directory(job_.output, best->step), everything, *ctx_.comm);
  model_.publish_masters();
  if (root())
    log::info("the weights are those of step {}, of the best validation: {} {:.4f}", best->step,
              printable(best->metric), best->value);
}

}  // namespace dstrain
