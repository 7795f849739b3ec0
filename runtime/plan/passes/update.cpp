#include <fmt/core.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ir/rule.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/parallel/divided_matrix.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/transfers.h"

namespace dstrain {
namespace {

// The update of one unit. `adds`: along which ranks own slices of it. `held`: how this rank holds its state.
class PlacedUpdate final : public UnitUpdate {
 public:
  PlacedUpdate(Program& program, const Job& job, const Place& place, Axes adds, Unit& unit,
               Held held, int32_t group)
      : UnitUpdate(program, unit, job, range_of(unit_buffer(kNone, held, adds), unit, place),
                   {place.rank_in(adds), place.ranks_in(adds)}, group),
        rule_(optimizer_rule(job.optimizer.kind)),
        place_(place),
        adds_(adds),
        held_(held) {
    UnitBuffers& known = unit.buffers;
    if (job.master_dtype != program.dtype || (rule_.signs && rule_.signs->open_local_steps))
      known.separate_master = state("master", BufferRole::masters, DType::f32);
    for (const SlotRule& slot : own_slots(job.optimizer))
      known.slots.push_back(new_slot(slot, slot.dtype_in(job)));
    if (unit.spaces.sends_masters)
      known.separate_master = state("master", BufferRole::masters, program.dtype);
  }

  // Appends what reads the gradients.
  void begin() { rule_.begin(*this); }
  // Appends the rest.
  void finish() {
    if (rule_.finish) rule_.finish(*this);
    if (!unit().spaces.sends_masters) return;
    emit(OpKind::copy, {}, {buffers().master().id}, {part(buffers().values, updated())})
        .unless_skipped = true;
  }

  // Appends the update of the average of the weights (dstrain.ema), which must have their values of this step. It is a slot
  // behind those of the optimizer.
  void average() {
    if (config().ema_decay == 0) return;
    buffers().slots.push_back(new_slot(kWeightAverage, DType::f32));
    const auto decay = static_cast<float>(config().ema_decay);
    emit(OpKind::update_buffer,
         UpdateBufferAttrs{.keep = decay, .share = 1 - decay, .begins_with_sum = true},
         {master(updated())}, {part(buffers().slots.back().values, updated())});
  }

  BufferId part(const UnitBuffer& buffer, Range range) override {
    if (buffer.id == kNone) return kNone;
    const int64_t at = position_of(buffer, unit(), place_, range.begin);
    return program().view(buffer.id, at, buffer.values(range.size()));
  }

  RankNumber number_among(RankSet set) const override {
    const Axes along = axes_of(set);
    return {place_.rank_in(along), place_.ranks_in(along)};
  }

  void emit_gather(RankSet set, BufferId mine, BufferId all) override {
    emit(OpKind::all_gather, {}, {mine}, {all}).channel = channel_of(place_, axes_of(set));
  }

  // Ranks of a tensor group, which update the same range of their parts, gather these first.
  BufferId emit_whole(const Parameter& matrix, Range range, const Transform& transform) override {
    if (matrix.part.by == TensorPart::By::nothing)
      return UnitUpdate::emit_whole(matrix, range, transform);
    DividedMatrix parts(program(), place_, matrix,
                        Instruction{.when = When::step_end, .group = group()});
    const BufferId whole = parts.gather(add_matrix_direction(matrix));
    transform(whole);
    return program().view(parts.pick(whole), range.begin - matrix.offset, range.size());
  }

 private:
  Axes axes_of(RankSet set) const { return set == RankSet::parts ? adds_ | Axis::tensor : adds_; }

  // Returns state of all elements: a value for each `block` of them.
  UnitBuffer state(std::string_view what, BufferRole role, DType dtype, int64_t block = 1) {
    UnitBuffer buffer = unit_buffer(kNone, held_, adds_);
    buffer.block = block;
    const int64_t values = buffer.values(updated().size());
    buffer.id = add_buffer(what, values, Lifetime::persistent, dtype);
    program().at(buffer.id).role = role;
    return buffer;
  }

  UnitBuffers::Slot new_slot(const SlotRule& slot, DType dtype) {
    if (slot.gathered && sharded()) return gathered_state(slot.name);
    const bool of_all = slot.forms.has(UpdateForm::elements) && slot.forms.has(rule_.other_form);
    return {std::string(slot.name),
            of_all ? state(slot.name, BufferRole::optimizer_state, dtype, slot.block)
                   : partial_state(slot, dtype),
            slot.forms};
  }

  // Returns state that only parameters of some forms have.
  UnitBuffer partial_state(const SlotRule& slot, DType dtype) {
    std::vector<Range> held;
    int64_t elements = 0;
    for (const UpdateRun& run : runs()) {
      if (!slot.forms.has(run.form)) continue;
      held.push_back(run.range);
      elements += run.range.size();
    }
    UnitBuffer buffer = unit_buffer(kNone, held_, adds_);
    buffer.block = slot.block;
    buffer.id = add_buffer(slot.name, buffer.values(elements), Lifetime::persistent, dtype);
    program().at(buffer.id).role = BufferRole::optimizer_state;
    buffer.partial = std::move(held);
    return buffer;
  }

  // Returns state that ranks gather, of which this rank has its slice.
  UnitBuffers::Slot gathered_state(std::string_view what) {
    const BufferId whole =
        add_buffer(fmt::format("whole_{}", what), unit().elements, Lifetime::persistent);
    Buffer mine = program().at(program().view(whole, updated().begin, updated().size()));
    mine.name = fmt::format("{}:{}", what, unit().name);
    return {std::string(what), unit_buffer(program().add_buffer(std::move(mine)), held_, adds_),
            kAllForms, whole};
  }

  const OptimizerRule& rule_;
  const Place place_;
  const Axes adds_;
  const Held held_;
};

// Appends the copies of the sums of squares that the host has: of consecutive units at once.
void bring_squares(Program& program, BufferId norms, int32_t group) {
  const std::span<const Unit> units = program.trained_units();
  const auto on_host = [&](size_t u) { return units[u].buffers.host_squares != kNone; };
  for (size_t begin = 0, end; begin < units.size(); begin = end) {
    for (end = begin; end < units.size() && on_host(end) == on_host(begin);) ++end;
    if (!on_host(begin)) continue;
    const auto at = static_cast<int64_t>(begin), count = static_cast<int64_t>(end - begin);
    const BufferId from = program.view(program.root(units[begin].buffers.host_squares), at, count);
    for (Instruction& hop : transfer(program, from, program.view(norms, at, count),
                                     {.when = When::step_end, .group = group}))
      program.instructions.push_back(std::move(hop));
  }
}

// Appends the updates of units whose ranks keep their gradients. A unit's signs travel while those of the units before
// and behind it are packed, if collectives run beside computation. `end_update`: appends what follows the
// update of the unit with this number.
void exchange_signs(Program& program, const Job& job, StepKind kind,
                    std::vector<PlacedUpdate>& updates,
                    const std::function<void(size_t)>& end_update) {
  const SignRule& rule = *optimizer_rule(job.optimizer.kind).signs;
  std::vector<std::unique_ptr<SignUpdate>> signs;
  for (PlacedUpdate& update : updates) signs.push_back(rule.update(update, kind));
  const size_t apart = job.overlap_comm ? 1 : 0, count = signs.size();
  for (size_t i = 0; i < count + 2 * apart; ++i) {
    if (i < count) signs[i]->send();
    if (i >= apart && i - apart < count) signs[i - apart]->forward();
    if (i < 2 * apart) continue;
    signs[i - 2 * apart]->finish();
    end_update(i - 2 * apart);
  }
  std::vector<Instruction> first;
  for (const PlacedUpdate& update : updates)
    first.insert(first.end(), update.first().begin(), update.first().end());
  program.instructions.insert(program.instructions.begin(), first.begin(), first.end());
}

// Returns for each parameter whether it is a table of which layers look up rows.
std::vector<bool> looked_up(const Program& program) {
  std::vector<bool> tables(program.parameters.size());
  for (const Instruction& op : program.instructions) {
    if (!rule_of(op.op).looks_up) continue;
    for (const BufferId id : op.reads)
      if (id != kNone && program.at(id).parameter >= 0)
        tables[static_cast<size_t>(program.at(id).parameter)] = true;
  }
  return tables;
}

}  // namespace

void update(Program& program, const Job& job, const Place& place, const Residency& residency,
            StepKind kind) {
  const Axes adds = residency.adds;
  const bool keeps = keeps_gradients(job, kind);
  const auto units = static_cast<int64_t>(program.trained_units().size());
  const BufferId norms = program.add_buffer({.name = "square_sums",
                                             .shape = {units},
                                             .dtype = DType::f64,
                                             .lifetime = Lifetime::step,
                                             .role = BufferRole::square_sums});
  const int32_t group = program.add_group("step");
  for (int64_t u = 0; u < units; ++u) {
    const Unit& unit = program.unit(u);
    const UnitBuffer& grads = unit.buffers.gradients;
    // Where ranks keep their gradients the norm is of all that this rank has.
    const Range owned =
        keeps ? Range{0, unit.elements} : owned_slice(unit, place, adds_of(unit, adds));
    const int64_t at = position_of(grads, unit, place, owned.begin);
    // Those that are on disk have been added as they passed the host (StepGradients).
    if (unit.spaces.gradients == Space::disk) continue;
    const bool here = unit.spaces.gradients == Space::device;
    program.add_at_end(OpKind::sum_squares, {program.view(grads.id, at, owned.size())},
                       {here ? program.view(norms, u, 1) : unit.buffers.host_squares}, group);
  }
  bring_squares(program, norms, group);
  std::vector<BufferId> reads{norms};
  for (const ProgramLoss& loss : program.losses) reads.push_back(loss.sum);
  program.add_at_end(OpKind::finish_gradients, std::move(reads), {}, group);
  // What codecs have computed for the next step replaces what they kept, unless the step is skipped.
  for (const StateCommit& commit : program.commits)
    program.add_at_end(OpKind::commit_state, {commit.next}, {commit.state}, group).attrs =
        CommitAttrs{.unscale = commit.unscale};
  std::vector<PlacedUpdate> updates;
  updates.reserve(static_cast<size_t>(units));
  const auto add = [&](size_t u) -> PlacedUpdate& {
    Unit& unit = program.units[u];
    return updates.emplace_back(program, job, place, adds_of(unit, adds), unit,
                                unit_residency(residency, unit, place).optimizer,
                                program.add_group(unit.name, static_cast<int>(u)));
  };
  // Appends what follows the update of a unit's weights: that of their average, and their gather.
  const auto end_update = [&](size_t u) {
    updates[u].average();
    const Unit& unit = program.units[u];
    const Residency own = unit_residency(residency, unit, place);
    if (own.optimizer == own.parameters) return;
    const Axes along = adds_of(unit, adds);
    const Range owned = owned_slice(unit, place, along);
    const UnitBuffer& params = unit.buffers.values;
    const int64_t at = position_of(params, unit, place, owned.begin);
    const BufferId mine = program.view(params.id, at, owned.size());
    program.add_at_end(OpKind::all_gather, {mine}, {params.id}, updates[u].group()).channel =
        channel_of(place, own.parameters == Held::shard ? Axis::replica : along);
  };
  if (keeps) {
    for (size_t u = 0; u < static_cast<size_t>(units); ++u) add(u);
    exchange_signs(program, job, kind, updates, end_update);
    return;
  }
  const auto finish = [&](size_t u) {
    updates[u].finish();
    end_update(u);
  };
  // The directions of a unit's matrices travel while those of the unit before it are transformed; not where the state
  // is offloaded or parameters are on disk, which are brought and stored once for all of a unit's instructions.
  bool waiting = false;
  const bool sliced = residency.optimizer != Held::whole;
  const bool ahead = job.overlap_comm && sliced && job.offload.optimizer == OffloadTo::none &&
                     job.offload.parameters != OffloadTo::nvme;
  for (size_t u = 0; u < static_cast<size_t>(units); ++u) {
    add(u).begin();
    if (std::exchange(waiting, false)) finish(u - 1);
    waiting = ahead && updates[u].has_matrices();
    if (!waiting) finish(u);
  }
  if (waiting) finish(static_cast<size_t>(units) - 1);
}

void use_synchronised_weights(Program& program, const Job& job) {
  const SignRule* signs = optimizer_rule(job.optimizer.kind).signs;
  if (!signs || !signs->open_local_steps) return;
  std::vector<Instruction> begin;
  for (size_t u = 0; u < program.trained_units().size(); ++u) {
    Unit& unit = program.units[u];
    const BufferId master = program.add_buffer({.name = "master:" + unit.name,
                                                .shape = {unit.elements},
                                                .memory = MemoryClass::optimizer,
                                                .lifetime = Lifetime::persistent,
                                                .role = BufferRole::masters});
    unit.buffers.separate_master = {.id = master};
    begin.push_back({.op = OpKind::accumulate,
                     .when = When::step_begin,
                     .reads = {master},
                     .writes = {unit.buffers.values.id},
                     .group = program.add_group(unit.name)});
  }
  program.instructions.insert(program.instructions.begin(), begin.begin(), begin.end());
}

void set_update_forms(Program& program, const OptimizerConfig& optimizer) {
  const OptimizerRule& rule = optimizer_rule(optimizer.kind);
  if (!rule.takes) return;
  const std::vector<bool> tables = looked_up(program);
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    Parameter& p = program.parameters[i];
    if (!p.frozen && rule.takes(optimizer, {p.name, p.shape, tables[i]})) p.form = rule.other_form;
  }
}

}  // namespace dstrain
