// Steps with a second moment that stays as it is: no gradient travels whole (those of OneBitLamb are in
// lamb_momentum.cpp). What travels as signs is
// - OneBitAdam: each rank's share of the momentum, made of its own gradient; the shares add up to the momentum.
// - ZeroOneAdam, before its second moment is frozen: each rank's own gradient.
// - ZeroOneAdam, after that: what the rank has moved since ranks have synchronised the last time, in some steps. In the
//   others nothing travels. Weights that the forward pass reads are then the rank's own, made at the beginning of a
//   step of the weights that are synchronised and of what the rank has moved since.
// With sharded masters and second moments (OneBitAdam at ZeRO stage 1) a rank updates its slice of the weights by its
// slice of the momentum, and ranks gather the weights (frozen_slices.h).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/codecs/frozen_slices.h"
#include "runtime/plan/codecs/lamb_momentum.h"
#include "runtime/plan/codecs/sign_exchange.h"

namespace dstrain {
namespace {

// What a unit's update consists of.
enum class SignUpdate { momentum, gradient, local, synchronise };

// What ends the step of a unit if ranks add its gradients: updates, and gathers of the weights that have been updated.
struct UnitEnd {
  std::vector<Instruction> updates, gathers;
};

// The update of one unit, in three parts, between which a collective is under way.
class SignUnit {
 public:
  SignUnit(Program& program, const Job& job, Place place, size_t unit, SignUpdate kind, UnitEnd end)
      : program_(program),
        rule_(optimizer_rule(job.optimizer.kind)),
        ranks_(place.ranks()),
        unit_(program.units[unit]),
        kind_(kind),
        updates_(std::move(end.updates)),
        gathers_(std::move(end.gathers)),
        // Nothing is exchanged where each rank moves by itself.
        exchange_(program, kind == SignUpdate::local ? Place{} : place, unit, updates_.front()),
        gradient_(unit_.buffers.gradients.id),
        momentum_(unit_.buffers.slots[0].gathered),
        second_(unit_.buffers.slots[1].values.id) {
    const BufferId own = unit_.buffers.slots[0].values.id;
    if (momentum_ != kNone)
      slices_.emplace(program, place, unit_, own, second_, momentum_);
    else
      momentum_ = own;
    if (kind == SignUpdate::local || kind == SignUpdate::synchronise) add_local_sum();
  }

  // Appends what makes the momentum whole to the beginning of a step.
  void append_gathers(std::vector<Instruction>& begin) {
    slices_->append_gathers(updates_.front(), begin);
  }

  void send() {
    switch (kind_) {
      case SignUpdate::momentum:
        emit(OpKind::local_momentum, {gradient_, slices_ ? slices_->bits() : second_}, {momentum_})
            .attrs = LocalMomentumAttrs{.ranks = ranks_};
        return exchange_.send(momentum_, {});
      case SignUpdate::gradient:
        return exchange_.send(gradient_, {.gradient = true});
      case SignUpdate::local:
      case SignUpdate::synchronise:
        emit(OpKind::local_step, {gradient_, second_}, {momentum_, local_sum_}).attrs =
            LocalMomentumAttrs{.ranks = ranks_};
        if (kind_ == SignUpdate::synchronise) exchange_.send(local_sum_, {.ranks = ranks_});
    }
  }
  void forward() {
    if (kind_ != SignUpdate::local) exchange_.forward();
  }
  void update() {
    switch (kind_) {
      case SignUpdate::momentum:
        exchange_.receive(momentum_);
        return frozen_updates();
      case SignUpdate::gradient: {
        const BufferId sum = summed_gradient();
        exchange_.receive(sum);
        emit(OpKind::local_momentum, {sum, second_}, {momentum_}).attrs =
            LocalMomentumAttrs{.scaled = ranks_ == 1};
        return frozen_updates();
      }
      case SignUpdate::local:
        return;
      case SignUpdate::synchronise:
        exchange_.receive(local_sum_);
        for (const Instruction& old : updates_)
          emit(OpKind::end_local_steps, {old.writes[2]},
               {old.writes[0], old.writes[1], sum_of(old), old.writes[3]})
              .attrs = rule_.frozen_attrs(old.attrs);
    }
  }

  // Appends what makes the rank's own weights to the beginning of a step.
  void append_weights(std::vector<Instruction>& begin) const {
    for (const Instruction& old : updates_)
      begin.push_back({.op = OpKind::local_weights,
                       .when = When::step_begin,
                       .attrs = rule_.frozen_attrs(old.attrs),
                       .reads = {old.writes[0], old.writes[2], sum_of(old)},
                       .writes = {old.writes[3]},
                       .group = old.group,
                       .sublayer = old.sublayer});
  }

 private:
  Instruction& emit(OpKind kind, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    return exchange_.emit(kind, std::move(reads), std::move(writes));
  }

  // Adds what local steps have moved, and the momentum, which differs from rank to rank meanwhile.
  void add_local_sum() {
    local_sum_ = program_.add_buffer({.name = "local_sum:" + unit_.name,
                                      .shape = {unit_.elements},
                                      .memory = MemoryClass::optimizer,
                                      .lifetime = Lifetime::persistent});
    // By parameters, so that the padding of the unit does not matter to other numbers of ranks.
    for (const int index : unit_.parameters) {
      const Parameter& p = program_.parameters[static_cast<size_t>(index)];
      for (const auto& [slot, values] :
           {std::pair{"local_momentum", momentum_}, std::pair{"local_sum", local_sum_}})
        program_.codec_state.push_back(
            {.name = p.name,
             .slot = slot,
             .values = program_.view(values, p.offset, p.shape.elements()),
             .per_rank = true,
             .mean = true});
    }
  }

  // Returns where the sum of all gradients goes.
  BufferId summed_gradient() {
    if (ranks_ == 1) return gradient_;
    return program_.add_buffer({.name = "summed_grads:" + unit_.name,
                                .shape = {unit_.elements},
                                .memory = MemoryClass::gradients});
  }

  // Returns the part of the local sum that belongs to the elements of an update.
  BufferId sum_of(const Instruction& update) const {
    const Buffer& moment = program_.at(update.writes[1]);
    return program_.view(local_sum_, moment.parent == kNone ? 0 : moment.parent_offset,
                         moment.shape.elements());
  }

  void frozen_updates() {
    for (const Instruction& old : updates_)  // they write masters, the two moments and parameters
      emit(rule_.frozen_op, {old.writes[1], old.writes[2]}, {old.writes[0], old.writes[3]}).attrs =
          rule_.frozen_attrs(old.attrs);
    for (const Instruction& gather : gathers_) program_.instructions.push_back(gather);
  }

  Program& program_;
  const OptimizerRule& rule_;
  const int64_t ranks_;
  const Unit& unit_;
  const SignUpdate kind_;
  const std::vector<Instruction> updates_, gathers_;
  SignExchange exchange_;
  const BufferId gradient_;
  BufferId momentum_;
  const BufferId second_;
  std::optional<FrozenSlices> slices_;  // where the second moment is sharded
  BufferId local_sum_ = kNone;
};

SignUpdate update_of(const Job& job, StepKind kind) {
  if (kind == StepKind::gradient_signs) return SignUpdate::gradient;
  if (kind == StepKind::local) return SignUpdate::local;
  return optimizer_rule(job.optimizer.kind).local_steps ? SignUpdate::synchronise
                                                        : SignUpdate::momentum;
}

// Takes what ends the step of each unit out of the program.
std::vector<UnitEnd> take_ends(Program& program, OpKind update) {
  std::vector<UnitEnd> ends(program.trained_units().size());
  // Returns the end of the unit whose buffer this is.
  const auto end_of = [&](UnitBuffer UnitBuffers::*what, BufferId buffer) -> UnitEnd& {
    for (size_t u = 0; u < ends.size(); ++u)
      if (program.root(buffer) == (program.units[u].buffers.*what).id) return ends[u];
    throw InternalError(fmt::format("{} is not that of a unit", program.at(buffer).name));
  };
  std::erase_if(program.instructions, [&](Instruction& op) {
    const bool gathers = op.op == OpKind::all_gather && op.when == When::step_end;
    if (op.op == update) end_of(&UnitBuffers::gradients, op.reads[0]).updates.push_back(op);
    if (gathers) end_of(&UnitBuffers::values, op.writes[0]).gathers.push_back(op);
    return op.op == update || gathers;
  });
  return ends;
}

}  // namespace

bool keeps_gradients(const Job& job, StepKind kind) {
  return kind != StepKind::whole_gradients && freezes(job.optimizer);
}

bool sends_signs(const Job& job, Place place, StepKind kind) {
  return keeps_gradients(job, kind) && kind != StepKind::local && place.ranks() > 1;
}

Job without_sums(const Job& job) {
  Job alone = job;
  alone.reduce = ReduceMode::boundary;
  alone.wire_dtype = DType::f32;
  return alone;
}

void send_signs(Program& program, const Job& job, Place place, StepKind kind) {
  // The norm is of all that this rank has, not of the sums that it owns.
  for (Instruction& op : program.instructions) {
    if (op.op == OpKind::finish_gradients) break;
    if (op.op == OpKind::sum_squares) op.reads[0] = program.root(op.reads[0]);
  }
  if (optimizer_rule(job.optimizer.kind).scaled_op)
    return send_lamb_momenta(program, job, place, kind);
  std::vector<UnitEnd> ends = take_ends(program, optimizer_rule(job.optimizer.kind).op);
  const SignUpdate update = update_of(job, kind);
  std::vector<SignUnit> units;
  units.reserve(ends.size());
  for (size_t u = 0; u < ends.size(); ++u)
    if (!ends[u].updates.empty())
      units.emplace_back(program, job, place, u, update, std::move(ends[u]));
  exchange_units(units, job.overlap_comm);
  std::vector<Instruction> begin;
  for (SignUnit& unit : units) {
    if (update == SignUpdate::local || update == SignUpdate::synchronise)
      unit.append_weights(begin);
    if (kind == StepKind::whole_momentum) unit.append_gathers(begin);
  }
  program.instructions.insert(program.instructions.begin(), begin.begin(), begin.end());
}

void use_synchronised_weights(Program& program, const Job& job) {
  if (!optimizer_rule(job.optimizer.kind).local_steps) return;
  std::vector<Instruction> begin;
  for (size_t u = 0; u < program.trained_units().size(); ++u) {
    Unit& unit = program.units[u];
    const BufferId master = program.add_buffer({.name = "master:" + unit.name,
                                                .shape = {unit.elements},
                                                .memory = MemoryClass::optimizer,
                                                .lifetime = Lifetime::persistent});
    unit.buffers.separate_master = {.id = master};
    begin.push_back({.op = OpKind::accumulate,
                     .when = When::step_begin,
                     .reads = {master},
                     .writes = {unit.buffers.values.id},
                     .group = program.add_group(unit.name)});
  }
  program.instructions.insert(program.instructions.begin(), begin.begin(), begin.end());
}

}  // namespace dstrain
