// The part of Executor that judges the end of a step.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/core/error.h"
#include "runtime/core/text.h"
#include "runtime/engine/step/executor.h"
#include "runtime/optim/loss_scaler.h"

namespace dstrain {
namespace {

float value_at(const Tensor& t, int64_t i) {
  if (t.dtype == DType::bf16) return to_float(t.as<const bf16>()[i]);
  if (t.dtype == DType::f16) return to_float(t.as<const f16>()[i]);
  return t.as<const float>()[i];
}

}  // namespace

FinishRule Executor::finish_rule() const {
  return {.clip = job_.gradient_clipping,
          .loss_scale = job_.loss_scale,
          .first_rank = plan_.place.moved(plan_.adds, 0).rank(),
          .group_ranks = plan_.place.ranks_in(plan_.adds)};
}

void Executor::check_finish(const StepState& s) {
  // A dynamic loss scale skips steps on purpose; check_loss_scale() fails at the smallest scale.
  skipped_in_a_row_ = s.skip && !job_.loss_scale.dynamic ? skipped_in_a_row_ + 1 : 0;
  if (s.skip && (!job_.skip_on_overflow || skipped_in_a_row_ >= job_.max_skipped_steps))
    report_non_finite(s);
  check_loss_scale(s, job_.loss_scale);
}

// Ends a step of which all ranks know, because they have added their counts, that its batch has no target. Nothing but
// the stop flags is exchanged.
void Executor::end_without_targets(StepContext& context, int64_t begin_ns) {
  StepState& s = *context.state;
  if (context.observer)
    fail_run(
        "step {}: none of the tokens of the batch counts in the loss, so there is no step to look "
        "at: give a larger batch, or data whose first samples have targets",
        s.step);
  const double stop = s.stop;
  const std::span<double> all(gathered_.data(), static_cast<size_t>(mesh_.world().size()));
  mesh_.world().gather_values({&stop, 1}, all);
  s.stop = std::ranges::any_of(all, [](double asked) { return asked != 0; }) ? 1 : 0;
  s.loss_sum = s.grad_square_sum = s.mean_square_sum = 0;
  s.grad_norm = 0;
  s.skip = 1;
  s.scale_exhausted = 0;
  if (context.next.dataset) feed_.read_ahead(context.next);
  if (!context.trace) return;
  StepTrace& trace = *context.trace;
  trace.whole = {begin_ns, monotonic_ns()};
  const TimeSpan nothing{trace.whole.end_ns, trace.whole.end_ns};
  std::fill(trace.issues.begin() + static_cast<std::ptrdiff_t>(body_), trace.issues.end(), nothing);
  std::fill(trace.waits.begin() + static_cast<std::ptrdiff_t>(body_), trace.waits.end(), nothing);
}

void Executor::report_non_finite(const StepState& s) {
  const Program& program = plan_.program;
  if (drives_) drives_->wait_for_all();  // gradients may be on their way to disk
  // Find the first parameter with a non-finite gradient on any rank: its index, the element and the value.
  const auto count = static_cast<double>(program.model_parameters().size());
  std::array<double, 3> mine{count, 0, 0};
  for (size_t i = 0; i < program.parameters.size() && mine[0] == count; ++i) {
    const Parameter& p = program.parameters[i];
    const Unit& unit = program.units[static_cast<size_t>(p.unit)];
    const UnitBuffer& gradients = unit.buffers.gradients;
    if (gradients.id == kNone) continue;
    const Range owned = owned_slice(unit, plan_.place, adds_of(unit, plan_.adds));
    const int64_t begin = std::max(owned.begin, p.offset);
    const int64_t end = std::min(owned.end, p.offset + held_elements(p.part, p.shape));
    if (begin >= end) continue;
    Tensor part = arenas_.tensor(plan_, gradients.id);
    part.data = part.as<std::byte>() +
                position_of(gradients, unit, plan_.place, begin) * size_of(part.dtype);
    part.shape = {end - begin};
    on_host(arenas_.owner_of(plan_, gradients.id), part, HostAccess::read,
            [&](int64_t at, const Tensor& values) {
              for (int64_t e = 0; e < values.elements() && mine[0] == count; ++e)
                if (const float v = value_at(values, e); !std::isfinite(v))
                  mine = {static_cast<double>(p.index),
                          static_cast<double>(
                              whole_element(p.part, p.shape, begin + at + e - p.offset)),
                          v};
            });
  }
  mesh_.world().gather_values(mine, gathered_);
  size_t first = 0;
  for (size_t r = 3; r < gathered_.size(); r += 3)
    if (gathered_[r] < gathered_[first]) first = r;
  const std::string what = fmt::format(
      "step {}: loss {}, gradient norm {}{}", s.step,
      number_text(s.loss_sum / static_cast<double>(s.targets)), number_text(s.grad_norm),
      skipped_in_a_row_ > 1 ? fmt::format(", {} steps in a row were skipped "
                                          "(dstrain.max_skipped_steps)",
                                          skipped_in_a_row_)
                            : "");
  if (gathered_[first] == count) fail_run("{}: not finite, although every gradient is", what);
  fail_run(
      "{}; the first gradient with a non-finite value is {} "
      "(element {} is {}); lower the learning rate, or check the data of this step",
      what, program.model_parameters()[static_cast<size_t>(gathered_[first])].name,
      static_cast<int64_t>(gathered_[first + 1]), number_text(gathered_[first + 2]));
}

}  // namespace dstrain
