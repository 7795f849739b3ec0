#include "runtime/optim/optimizers/zero_one_adam.h"

#include <string>
#include <utility>

#include "runtime/optim/optimizers/one_bit_adam.h"

namespace dstrain::optimizers {
namespace {

int64_t ranks_of(const UnitUpdate& update) {
  return update.ranks();
}

// Before the second moment is frozen: each rank's own gradient travels as signs.
class GradientSigns final : public SignUpdate {
 public:
  explicit GradientSigns(UnitUpdate& update)
      : SignUpdate(update, true), sum_(update.buffers().gradients.id) {}

  void send() override { exchange_->send(sum_, {.gradient = true}); }

  void finish() override {
    const bool alone = ranks_of(update_) == 1;
    if (!alone)
      sum_ = update_.program().add_buffer({.name = "summed_grads:" + update_.unit().name,
                                           .shape = {update_.unit().elements},
                                           .memory = MemoryClass::gradients});
    exchange_->receive(sum_);
    const auto& slots = update_.buffers().slots;
    update_.emit(OpKind::local_momentum, LocalMomentumAttrs{.scaled = alone},
                 {sum_, slots[1].values.id}, {slots[0].values.id});
    emit_frozen_adam(update_);
  }

 private:
  BufferId sum_;  // of the gradients
};

// After that: what the rank has moved since ranks have synchronised the last time travels as signs, in some steps. In
// the others nothing travels. Weights that the forward pass reads are then the rank's own, made at the beginning of a
// step of the weights that are synchronised and of what the rank has moved since.
class LocalSteps final : public SignUpdate {
 public:
  LocalSteps(UnitUpdate& update, bool synchronises)
      : SignUpdate(update, synchronises),
        momentum_(update.buffers().slots[0].values.id),
        sum_{update.add_buffer("local_sum", update.unit().elements, Lifetime::persistent)} {
    keep_state();
    for (const UpdateRun& run : update.runs())
      update.emit_first(
          OpKind::local_weights, frozen_adam_attrs(update, run),
          {update.master(run.range), update.slot(1, run.range), update.part(sum_, run.range)},
          {update.copy(run.range)});
  }

  void send() override {
    const UnitBuffers& buffers = update_.buffers();
    const int64_t ranks = ranks_of(update_);
    update_.emit(OpKind::local_step, LocalMomentumAttrs{.ranks = ranks},
                 {buffers.gradients.id, buffers.slots[1].values.id}, {momentum_, sum_.id});
    if (exchange_) exchange_->send(sum_.id, {.ranks = ranks});
  }

  void finish() override {
    if (!exchange_) return;
    exchange_->receive(sum_.id);
    for (const UpdateRun& run : update_.runs())
      update_.emit(OpKind::end_local_steps, frozen_adam_attrs(update_, run),
                   {update_.slot(1, run.range)},
                   {update_.master(run.range), update_.slot(0, run.range),
                    update_.part(sum_, run.range), update_.copy(run.range)});
  }

 private:
  // The momentum differs from rank to rank meanwhile, too. By parameters, so that the padding of the unit does not
  // matter to other numbers of ranks.
  void keep_state() {
    Program& program = update_.program();
    for (const int index : update_.unit().parameters) {
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      for (const auto& [slot, values] :
           {std::pair{"local_momentum", momentum_}, std::pair{"local_sum", sum_.id}})
        program.codec_state.push_back({.name = p.name,
                                       .slot = slot,
                                       .values = program.view(values, p.offset, p.shape.elements()),
                                       .per_rank = true,
                                       .mean = true});
    }
  }

  const BufferId momentum_;
  const UnitBuffer sum_;  // of what local steps have moved
};

}  // namespace

std::unique_ptr<SignUpdate> send_local_steps(UnitUpdate& update, StepKind kind) {
  if (kind == StepKind::gradient_signs) return std::make_unique<GradientSigns>(update);
  return std::make_unique<LocalSteps>(update, kind == StepKind::regular);
}

}  // namespace dstrain::optimizers
