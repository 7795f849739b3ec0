#include "runtime/optim/optimizers/one_bit_adam.h"

#include <optional>

#include "runtime/optim/signs/frozen_slices.h"

namespace dstrain::optimizers {
namespace {

// Each rank's share of the momentum, made of its own gradient, travels as signs; the shares add up to the momentum.
// With sharded masters and second moments a rank updates its slice of the weights by its slice of the momentum.
class MomentumSigns final : public SignUpdate {
 public:
  MomentumSigns(UnitUpdate& update, StepKind kind)
      : SignUpdate(update, true), momentum_(update.buffers().slots[0].gathered) {
    if (momentum_ == kNone) {
      momentum_ = update.buffers().slots[0].values.id;
      return;
    }
    slices_.emplace(update, momentum_);
    if (kind == StepKind::whole_momentum) slices_->emit_gathers();
  }

  void send() override {
    const UnitBuffers& buffers = update_.buffers();
    const auto ranks = int64_t{update_.ranks()};
    update_.emit(OpKind::local_momentum, LocalMomentumAttrs{.ranks = ranks},
                 {buffers.gradients.id, slices_ ? slices_->bits() : buffers.slots[1].values.id},
                 {momentum_});
    exchange_->send(momentum_, {});
  }

  void finish() override {
    exchange_->receive(momentum_);
    emit_frozen_adam(update_);
  }

 private:
  BufferId momentum_;                   // of all elements
  std::optional<FrozenSlices> slices_;  // where the second moment is sharded
};

}  // namespace

void emit_adam(UnitUpdate& update) {
  for (const UpdateRun& run : update.runs())
    update.emit_update(OpKind::adam,
                       AdamAttrs{.eps = static_cast<float>(update.config().eps),
                                 .weight_decay = run.settings.weight_decay},
                       run.range, 2);
}

FrozenAdamAttrs frozen_adam_attrs(const UnitUpdate& update, const UpdateRun& run) {
  return {.eps = static_cast<float>(update.config().eps),
          .weight_decay = run.settings.weight_decay};
}

void emit_frozen_adam(UnitUpdate& update) {
  for (const UpdateRun& run : update.runs())
    update.emit(OpKind::frozen_adam, frozen_adam_attrs(update, run),
                {update.slot(0, run.range), update.slot(1, run.range)},
                {update.master(run.range), update.copy(run.range)});
}

std::unique_ptr<SignUpdate> send_momentum(UnitUpdate& update, StepKind kind) {
  return std::make_unique<MomentumSigns>(update, kind);
}

}  // namespace dstrain::optimizers
