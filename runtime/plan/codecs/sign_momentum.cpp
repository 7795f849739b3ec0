// Steps with a second moment that stays as it is: no gradient travels whole (those of OneBitLamb are in
// lamb_momentum.cpp). What travels as signs is
// - OneBitAdam: each rank's share of the momentum, made of its own gradient; the shares add up to the momentum.
// - ZeroOneAdam, before its second moment is frozen: each rank's own gradient.
// - ZeroOneAdam, after that: what the rank has moved since ranks have synchronised the last time, in some steps. In the
//   others nothing travels. Weights that the forward pass reads are then the rank's own, made at the beginning of a
//   step of the weights that are synchronised and of what the rank has moved since.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rule.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/codecs/lamb_momentum.h"
#include "runtime/plan/codecs/sign_exchange.h"

namespace dstrain {
namespace {

// What a unit's update consists of.
enum class SignUpdate { momentum, gradient, local, synchronise };

// The update of one unit, in three parts, between which a collective is under way.
class UnitUpdate {
 public:
  // `updates`: the instructions that would update the unit with the sum of all gradients.
  UnitUpdate(Program& program, const Job& job, Place place, size_t unit, SignUpdate kind,
             std::vector<Instruction> updates)
      : program_(program),
        rule_(optimizer_rule(job.optimizer.kind)),
        ranks_(place.ranks),
        unit_(program.units[unit]),
        kind_(kind),
        updates_(std::move(updates)),
        // Nothing is exchanged where each rank moves by itself.
        exchange_(program, kind == SignUpdate::local ? Place{} : place, unit, updates_.front()),
        gradient_(program.find("grads:" + unit_.name)),
        momentum_(program.find(name_of_state(0))),
        second_(program.find(name_of_state(1))) {
    if (kind == SignUpdate::local || kind == SignUpdate::synchronise) add_local_sum();
  }

  void send() {
    switch (kind_) {
      case SignUpdate::momentum:
        emit(OpKind::local_momentum, {gradient_, second_}, {momentum_}).attrs =
            LocalMomentumAttrs{.ranks = ranks_};
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
  std::string name_of_state(size_t slot) const {
    return std::string(rule_.slots[slot]) + ":" + unit_.name;
  }
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
  }

  Program& program_;
  const OptimizerRule& rule_;
  const int64_t ranks_;
  const Unit& unit_;
  const SignUpdate kind_;
  const std::vector<Instruction> updates_;
  SignExchange exchange_;
  const BufferId gradient_, momentum_, second_;
  BufferId local_sum_ = kNone;
};

SignUpdate update_of(const Job& job, StepKind kind) {
  if (kind == StepKind::gradient_signs) return SignUpdate::gradient;
  if (kind == StepKind::local) return SignUpdate::local;
  return optimizer_rule(job.optimizer.kind).local_steps ? SignUpdate::synchronise
                                                        : SignUpdate::momentum;
}

// Takes the updates of each unit out of the program.
std::vector<std::vector<Instruction>> take_updates(Program& program, OpKind update) {
  std::vector<std::vector<Instruction>> updates(program.units.size());
  const auto unit_of = [&](const Instruction& op) {
    for (size_t u = 0; u < program.units.size(); ++u)
      if (program.root(op.reads[0]) == program.find("grads:" + program.units[u].name)) return u;
    throw InternalError("an update reads no gradients");
  };
  std::erase_if(program.instructions, [&](Instruction& op) {
    const bool updates_unit = op.op == update;
    if (updates_unit) updates[unit_of(op)].push_back(op);
    return updates_unit;
  });
  return updates;
}

}  // namespace

bool keeps_gradients(const Job& job, StepKind kind) {
  return kind != StepKind::whole_gradients && freezes(job.optimizer);
}

bool sends_signs(const Job& job, Place place, StepKind kind) {
  return keeps_gradients(job, kind) && kind != StepKind::local && place.ranks > 1;
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
  if (optimizer_rule(job.optimizer.kind).scaled_attrs)
    return send_lamb_momenta(program, job, place);
  std::vector<std::vector<Instruction>> updates =
      take_updates(program, optimizer_rule(job.optimizer.kind).op);
  const SignUpdate update = update_of(job, kind);
  std::vector<UnitUpdate> units;
  units.reserve(updates.size());
  for (size_t u = 0; u < updates.size(); ++u)
    if (!updates[u].empty())
      units.emplace_back(program, job, place, u, update, std::move(updates[u]));
  exchange_units(units, job.overlap_comm);
  if (update != SignUpdate::local && update != SignUpdate::synchronise) return;
  std::vector<Instruction> begin;
  for (const UnitUpdate& unit : units) unit.append_weights(begin);
  program.instructions.insert(program.instructions.begin(), begin.begin(), begin.end());
}

void use_synchronised_weights(Program& program, const Job& job) {
  if (!optimizer_rule(job.optimizer.kind).local_steps) return;
  std::vector<Instruction> begin;
  for (const Unit& unit : program.units) {
    const BufferId master = program.add_buffer({.name = "master:" + unit.name,
                                                .shape = {unit.elements},
                                                .memory = MemoryClass::optimizer,
                                                .lifetime = Lifetime::persistent});
    begin.push_back({.op = OpKind::accumulate,
                     .when = When::step_begin,
                     .reads = {master},
                     .writes = {program.find("params:" + unit.name)},
                     .group = program.add_group(unit.name)});
  }
  program.instructions.insert(program.instructions.begin(), begin.begin(), begin.end());
}

}  // namespace dstrain
