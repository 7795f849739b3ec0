#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/parallel/divided_matrix.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

BufferId state(Program& program, const std::string& name, int64_t elements,
               DType dtype = DType::f32) {
  return program.add_buffer({.name = name,
                             .shape = {elements},
                             .dtype = dtype,
                             .memory = MemoryClass::optimizer,
                             .lifetime = Lifetime::persistent});
}

// Returns the settings of a parameter: its group's, where it has them; else the optimizer's.
GroupSettings settings_of(const Parameter& p, const Job& job) {
  GroupSettings settings{.weight_decay = static_cast<float>(job.optimizer.weight_decay)};
  const auto is_like = [&p](const std::string& pattern) { return matches(pattern, p.name); };
  if (std::ranges::any_of(job.weight_decay_exclude, is_like)) settings.weight_decay = 0;
  if (const ParameterGroup* group = job.model.fine_tuning().group_of(p.name)) {
    settings.lr_scale = static_cast<float>(group->lr_scale);
    if (group->weight_decay) settings.weight_decay = static_cast<float>(*group->weight_decay);
  }
  return settings;
}

struct Segment {
  Range range;
  GroupSettings settings;
  const Parameter* matrix;  // that is updated as a whole, or null
};

// Returns runs of parameters with the same settings, and whole matrices. Padding belongs to the run before it, and to
// none after a matrix.
std::vector<Segment> segments(const Program& program, const Unit& unit, const Job& job) {
  std::vector<Segment> list;
  for (int index : unit.parameters) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    const GroupSettings settings = settings_of(p, job);
    const bool joins = !list.empty() && !list.back().matrix;
    if (joins && !p.as_matrix && list.back().settings == settings) continue;
    if (joins) list.back().range.end = p.offset;
    const int64_t end =
        p.as_matrix ? p.offset + held_shape(p.part, p.shape).elements() : unit.elements;
    list.push_back({{p.offset, end}, settings, p.as_matrix ? &p : nullptr});
  }
  return list;
}

// Appends the update of one unit. `held`: how this rank holds its state.
class UnitUpdate {
 public:
  UnitUpdate(Program& program, const Job& job, const Place& place, Axes adds, Unit& unit, Held held,
             int32_t group)
      : program_(program),
        job_(job),
        rule_(optimizer_rule(job.optimizer.kind)),
        place_(place),
        adds_(adds_of(unit, adds)),
        unit_(unit),
        held_(held),
        updated_(range_of(held_as_state(kNone), unit, place)),
        group_(group),
        segments_(segments(program, unit, job)) {
    const bool apart = job.master_dtype != program.dtype || rule_.local_steps;
    UnitBuffers& known = unit.buffers;
    if (apart)
      known.separate_master = held_as_state(state(program, "master:" + unit.name, updated_.size()));
    if (apart) copy_ = known.values;
    for (const std::string_view slot : state_slots(job.optimizer)) {
      const std::string name = fmt::format("{}:{}", slot, unit.name);
      const bool partial = rule_.matrices && !slots_.empty(),
                 gathered =
                     rule_.slices_frozen && !rule_.scaled_attrs && slots_.empty() && sharded();
      UnitBuffers::Slot& added = known.slots.emplace_back(UnitBuffers::Slot{std::string(slot)});
      added.gathered = gathered ? state(program, "whole_" + name, unit.elements) : kNone;
      added.values = partial ? partial_state(name)
                     : gathered
                         ? held_as_state(part_of_all(added.gathered, name))
                         : held_as_state(state(program, name, updated_.size(), job.state_dtype));
      slots_.push_back(added.values);
    }
    // The op has an operand for every slot of its optimizer: absent where the optimizer keeps no state.
    while (slots_.size() < rule_.slots.size() && !rule_.slots[slots_.size()].empty())
      slots_.emplace_back();
  }

  int32_t group() const { return group_; }

  // Returns whether parameters of the unit are updated as whole matrices.
  bool has_matrices() const {
    return std::ranges::any_of(segments_, [](const Segment& s) { return s.matrix != nullptr; });
  }

  // Appends what reads the gradients, and for whole matrices the gather of their directions.
  void begin() {
    if (rule_.scaled_attrs) add_direction(held_as_state(kNone), updated_.size());
    if (has_matrices()) add_direction({}, unit_.elements);
    for (const Segment& s : segments_) {
      const Range range = common(updated_, s.range);
      if (range.size() <= 0) continue;
      if (s.matrix)
        matrix_direction(range);
      else
        update_segment(range, s);
    }
    if (has_matrices() && sharded()) gather_directions();
  }

  // Appends the rest.
  void finish() {
    if (rule_.scaled_attrs) scaled_update(square_sums());
    for (const Segment& s : segments_)
      if (s.matrix && common(updated_, s.range).size() > 0) update_matrix(s);
  }

 private:
  bool sharded() const { return updated_.size() < unit_.elements; }

  // Returns a buffer that is held as the unit's state.
  UnitBuffer held_as_state(BufferId id) const { return unit_buffer(id, held_, adds_); }

  const UnitBuffer& grads() const { return unit_.buffers.gradients; }
  const UnitBuffer& master() const { return unit_.buffers.master(); }
  const UnitBuffer& direction() const { return unit_.buffers.direction; }

  void add_direction(UnitBuffer buffer, int64_t elements) {
    buffer.id = program_.add_buffer({.name = "direction:" + unit_.name,
                                     .shape = {elements},
                                     .memory = MemoryClass::optimizer,
                                     .lifetime = Lifetime::step});
    unit_.buffers.direction = std::move(buffer);
  }

  // Returns state that matrices do not have.
  UnitBuffer partial_state(const std::string& name) {
    std::vector<Range> held;
    int64_t elements = 0;
    for (const Segment& s : segments_) {
      const Range range = common(updated_, s.range);
      if (s.matrix || range.size() <= 0) continue;
      held.push_back(range);
      elements += range.size();
    }
    UnitBuffer buffer = held_as_state(state(program_, name, elements));
    buffer.partial = std::move(held);
    return buffer;
  }

  // Returns the view of these elements of the unit in a flat buffer of the unit.
  BufferId part(const UnitBuffer& buffer, Range range) {
    if (buffer.id == kNone) return kNone;
    const int64_t at = position_of(buffer, unit_, place_, range.begin);
    return program_.view(buffer.id, at, range.size());
  }

  // Returns this rank's slice of state that ranks gather.
  BufferId part_of_all(BufferId whole, const std::string& name) {
    const BufferId mine = program_.view(whole, updated_.begin, updated_.size());
    Buffer named = program_.at(mine);
    named.name = name;
    return program_.add_buffer(std::move(named));
  }

  Instruction& emit(OpKind op, OpAttrs attrs = {}) {
    program_.instructions.push_back(
        {.op = op, .when = When::step_end, .attrs = attrs, .group = group_});
    return program_.instructions.back();
  }

  void update_segment(Range range, const Segment& s) {
    std::vector<BufferId> reads{part(grads(), range)}, writes;
    if (rule_.scaled_attrs)
      reads.push_back(part(master(), range));
    else
      writes.push_back(part(master(), range));
    for (const UnitBuffer& slot : slots_) writes.push_back(part(slot, range));
    writes.push_back(part(rule_.scaled_attrs ? direction() : copy_, range));
    Instruction& op = emit(rule_.op, rule_.attrs(job_.optimizer, s.settings));
    op.reads = std::move(reads);
    op.writes = std::move(writes);
  }

  // Appends the direction of the elements of a matrix that this rank updates.
  void matrix_direction(Range range) {
    std::vector<BufferId> reads{part(grads(), range)};
    std::vector<BufferId> writes{part(slots_[0], range), part(direction(), range)};
    Instruction& op =
        emit(rule_.matrices->direction_op, rule_.matrices->direction_attrs(job_.optimizer));
    op.reads = std::move(reads);
    op.writes = std::move(writes);
  }

  // Every rank gets the directions of the unit from the owners of its slices; between the matrices they are 0.
  void gather_directions() {
    const BufferId mine = part(direction(), updated_);
    int64_t at = updated_.begin;
    const auto zero_until = [&](int64_t end) {
      if (at >= end) return;
      const BufferId gap = part(direction(), {at, end});
      emit(OpKind::zero).writes = {gap};
    };
    for (const Segment& s : segments_) {
      const Range range = common(updated_, s.range);
      if (!s.matrix || range.size() <= 0) continue;
      zero_until(range.begin);
      at = range.end;
    }
    zero_until(updated_.end);
    Instruction& op = emit(OpKind::all_gather);
    op.channel = channel_of(place_, adds_);
    op.reads = {mine};
    op.writes = {direction().id};
  }

  // Each rank that updates a part of a matrix transforms the whole direction: no result has to be sent. Ranks of a tensor
  // group, which update the same range of their parts, gather these first.
  void update_matrix(const Segment& s) {
    const Parameter& p = *s.matrix;
    const bool divided = p.part.by != TensorPart::By::nothing;
    const BufferId mine = program_.add_buffer({.name = "direction:" + p.name,
                                               .shape = held_shape(p.part, p.shape),
                                               .memory = MemoryClass::optimizer,
                                               .lifetime = Lifetime::step,
                                               .parent = direction().id,
                                               .parent_offset = p.offset});
    std::optional<DividedMatrix> parts;
    if (divided)
      parts.emplace(program_, place_, p, Instruction{.when = When::step_end, .group = group_});
    const BufferId whole = divided ? parts->gather(mine) : mine;
    Instruction& transform =
        emit(rule_.matrices->whole_op, rule_.matrices->whole_attrs(job_.optimizer));
    transform.reads = transform.writes = {whole};
    const Range range = common(updated_, s.range);
    const BufferId moved =
        divided ? program_.view(parts->pick(whole), range.begin - p.offset, range.size())
                : part(direction(), range);
    std::vector<BufferId> reads{moved};
    std::vector<BufferId> writes{part(master(), range), part(copy_, range)};
    Instruction& op = emit(rule_.matrices->step_op,
                           rule_.matrices->step_attrs(job_.optimizer, s.settings, p.shape));
    op.reads = std::move(reads);
    op.writes = std::move(writes);
  }

  Range elements_of(int index) const {
    return dstrain::elements_of(program_.parameters[static_cast<size_t>(index)]);
  }

  // Appends the square sums of the weights and of the direction of every parameter. As for the gradient's norm each
  // rank adds the slice that it owns, whatever it updates, so that all stages give the same bits. Returns the pairs of
  // all ranks, those of a tensor group too, which have parts of the parameters or slices of them.
  BufferId square_sums() {
    const auto pairs = 2 * static_cast<int64_t>(unit_.parameters.size());
    const Axes along = adds_ | Axis::tensor;
    const int64_t rank = place_.rank_in(along), ranks = place_.ranks_in(along);
    const BufferId all = program_.add_buffer({.name = "trust:" + unit_.name,
                                              .shape = {ranks * pairs},
                                              .dtype = DType::f64,
                                              .memory = MemoryClass::optimizer,
                                              .lifetime = Lifetime::step});
    const BufferId mine = program_.view(all, rank * pairs, pairs);
    const Range owned = owned_slice(unit_, place_, adds_);
    emit(OpKind::zero).writes = {mine};
    int64_t next = rank * pairs;
    for (const int index : unit_.parameters)
      for (const UnitBuffer* values : {&master(), &direction()}) {
        const BufferId sum = program_.view(all, next++, 1);
        const Range range = common(owned, elements_of(index));
        if (range.size() <= 0) continue;
        const BufferId read = part(*values, range);
        Instruction& op = emit(OpKind::sum_squares);
        op.reads = {read};
        op.writes = {sum};
      }
    if (ranks > 1) {
      Instruction& op = emit(OpKind::all_gather);
      op.channel = channel_of(place_, along);
      op.reads = {mine};
      op.writes = {all};
    }
    return all;
  }

  void scaled_update(BufferId sums) {
    const auto count = static_cast<int64_t>(unit_.parameters.size());
    if (rule_.average_attrs) {
      const BufferId average = state(program_, "lamb_average:" + unit_.name, count);
      unit_.buffers.averages = average;
      Instruction& op = emit(OpKind::lamb_average, rule_.average_attrs(job_.optimizer));
      op.reads = {sums};
      op.writes = {average};
    }
    for (int64_t i = 0; i < count; ++i) {
      const int index = unit_.parameters[static_cast<size_t>(i)];
      const Range range = common(updated_, elements_of(index));
      if (range.size() <= 0) continue;
      const GroupSettings settings =
          settings_of(program_.parameters[static_cast<size_t>(index)], job_);
      std::vector<BufferId> reads{part(direction(), range), sums};
      std::vector<BufferId> writes{part(master(), range), part(copy_, range)};
      Instruction& op =
          emit(rule_.scaled_op, rule_.scaled_attrs(job_.optimizer, settings, i, count));
      op.reads = std::move(reads);
      op.writes = std::move(writes);
    }
  }

  Program& program_;
  const Job& job_;
  const OptimizerRule& rule_;
  const Place place_;
  const Axes adds_;
  Unit& unit_;
  const Held held_;
  const Range updated_;
  const int32_t group_;
  const std::vector<Segment> segments_;
  UnitBuffer copy_;  // of the masters, in the run's dtype
  std::vector<UnitBuffer> slots_;
};

}  // namespace

void update(Program& program, const Job& job, const Place& place, Axes adds,
            const Residency& residency) {
  const auto units = static_cast<int64_t>(program.trained_units().size());
  const BufferId norms = program.add_buffer(
      {.name = "square_sums", .shape = {units}, .dtype = DType::f64, .lifetime = Lifetime::step});
  const int32_t group = program.add_group("step");
  for (int64_t u = 0; u < units; ++u) {
    const Unit& unit = program.units[static_cast<size_t>(u)];
    const UnitBuffer& grads = unit.buffers.gradients;
    const Range owned = owned_slice(unit, place, adds_of(unit, adds));
    const int64_t at = position_of(grads, unit, place, owned.begin);
    program.instructions.push_back({.op = OpKind::sum_squares,
                                    .when = When::step_end,
                                    .reads = {program.view(grads.id, at, owned.size())},
                                    .writes = {program.view(norms, u, 1)},
                                    .group = group});
  }
  std::vector<BufferId> reads{norms};
  for (const ProgramLoss& loss : program.losses) reads.push_back(loss.sum);
  program.instructions.push_back({.op = OpKind::finish_gradients,
                                  .when = When::step_end,
                                  .reads = std::move(reads),
                                  .group = group});
  std::vector<UnitUpdate> updates;
  const auto finish = [&](size_t u) {
    const Unit& unit = program.units[u];
    updates[u].finish();
    if (residency.optimizer == residency.parameters) return;
    const Axes along = adds_of(unit, adds);
    const Range owned = owned_slice(unit, place, along);
    const UnitBuffer& params = unit.buffers.values;
    const int64_t at = position_of(params, unit, place, owned.begin);
    program.instructions.push_back(
        {.op = OpKind::all_gather,
         .when = When::step_end,
         .reads = {program.view(params.id, at, owned.size())},
         .writes = {params.id},
         .group = updates[u].group(),
         .channel =
             channel_of(place, residency.parameters == Held::shard ? Axis::replica : along)});
  };
  // The directions of a unit's matrices travel while those of the unit before it are transformed; not where the state
  // is offloaded or parameters are on disk, which are brought and stored once for all of a unit's instructions.
  bool waiting = false;
  const bool sliced = residency.optimizer != Held::whole;
  const bool ahead = job.overlap_comm && sliced && job.offload.optimizer == OffloadTo::none &&
                     job.offload.parameters != OffloadTo::nvme;
  for (size_t u = 0; u < static_cast<size_t>(units); ++u) {
    Unit& unit = program.units[u];
    updates.emplace_back(program, job, place, adds, unit, residency.optimizer,
                         program.add_group(unit.name, static_cast<int>(u)));
    updates[u].begin();
    if (std::exchange(waiting, false)) finish(u - 1);
    waiting = ahead && updates[u].has_matrices();
    if (!waiting) finish(u);
  }
  if (waiting) finish(static_cast<size_t>(units) - 1);
}

void mark_matrices(Program& program, const OptimizerConfig& optimizer) {
  const MatrixRule* rule = optimizer_rule(optimizer.kind).matrices;
  for (Parameter& p : program.parameters)
    p.as_matrix = rule && !p.frozen && rule->takes(p.name, p.shape);
}

}  // namespace dstrain
