#include "runtime/optim/unit_update.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

namespace dstrain {
namespace {

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

// Joins parameters that follow one another to runs with the same settings and form.
std::vector<UpdateRun> joined(const std::vector<UpdateRun>& parameters, int64_t end) {
  std::vector<UpdateRun> runs;
  for (const UpdateRun& p : parameters) {
    const bool joins = !runs.empty() && !runs.back().matrix;
    const bool alike = joins && !p.matrix && runs.back().form == p.form;
    if (alike && runs.back().settings == p.settings) continue;
    if (joins) runs.back().range.end = p.range.begin;
    runs.push_back(p);
    // A matrix has its rows of padding too: it is updated with them.
    const Parameter* m = p.matrix;
    runs.back().range.end = m ? m->offset + held_shape(m->part, m->shape).elements() : end;
  }
  return runs;
}

}  // namespace

UnitUpdate::UnitUpdate(Program& program, Unit& unit, const Job& job, Range updated,
                       RankNumber owner, int32_t group)
    : program_(program),
      unit_(unit),
      config_(job.optimizer),
      updated_(updated),
      owner_(owner),
      group_(group) {
  for (const int index : unit.parameters) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    parameters_.push_back(
        {elements_of(p), settings_of(p, job), p.form, p.form == UpdateForm::matrix ? &p : nullptr});
  }
  for (UpdateRun run : joined(parameters_, unit.elements)) {
    run.range = common(updated, run.range);
    if (run.range.size() > 0) runs_.push_back(run);
  }
}

bool UnitUpdate::has_matrices() const {
  return std::ranges::any_of(parameters_, [](const UpdateRun& p) { return p.matrix != nullptr; });
}

BufferId UnitUpdate::add_matrix_direction(const Parameter& matrix) {
  return program_.add_buffer({.name = "direction:" + matrix.name,
                              .shape = held_shape(matrix.part, matrix.shape),
                              .memory = MemoryClass::optimizer,
                              .lifetime = Lifetime::step,
                              .parent = unit_.buffers.direction.id,
                              .parent_offset = matrix.offset});
}

BufferId UnitUpdate::emit_whole(const Parameter& matrix, Range range, const Transform& transform) {
  transform(add_matrix_direction(matrix));
  return direction(range);
}

BufferId UnitUpdate::slot(size_t i, Range range) {
  const std::vector<UnitBuffers::Slot>& slots = unit_.buffers.slots;
  return i < slots.size() ? part(slots[i].values, range) : kNone;
}

BufferId UnitUpdate::copy(Range range) {
  const bool apart = unit_.buffers.separate_master.id != kNone && !unit_.spaces.sends_masters;
  return apart ? part(unit_.buffers.values, range) : kNone;
}

BufferId UnitUpdate::add_buffer(std::string_view what, int64_t elements, Lifetime lifetime,
                                DType dtype) {
  return program_.add_buffer(
      {.name = fmt::format("{}:{}", what, unit_.name),
       .shape = {elements},
       .dtype = dtype,
       .memory = MemoryClass::optimizer,
       .lifetime = lifetime,
       .space = lifetime == Lifetime::persistent ? unit_.spaces.state : unit_.spaces.update});
}

UnitBuffer UnitUpdate::held_as_state(BufferId id) const {
  UnitBuffer buffer = unit_.buffers.slots.front().values;
  buffer.id = id;
  return buffer;
}

UnitBuffer UnitUpdate::add_kept(const SlotRule& rule) {
  if (!rule.values_of.empty()) return unit_.buffers.slot(rule.values_of)->values;
  if (rule.block == SlotRule::kWholeParameter)
    return {.id = add_buffer(rule.name, static_cast<int64_t>(parameters_.size()),
                             Lifetime::persistent)};
  return held_as_state(add_buffer(rule.name, updated_.size(), Lifetime::persistent));
}

CodecState UnitUpdate::kept_of(size_t parameter, const SlotRule& rule, const UnitBuffer& buffer) {
  const auto index = static_cast<size_t>(unit_.parameters[parameter]);
  CodecState state{.name = program_.parameters[index].name,
                   .slot = std::string(rule.name),
                   .per_rank = rule.per_rank,
                   .mean = rule.per_rank};
  if (rule.block == SlotRule::kWholeParameter) {
    state.values = program_.view(buffer.id, static_cast<int64_t>(parameter), 1);
    return state;
  }
  const Range all = parameters_[parameter].range, own = common(updated_, all);
  state.sharded = sharded();
  state.elements = all.size();
  if (own.size() <= 0) return state;
  state.values = part(buffer, own);
  state.begin = own.begin - all.begin;
  return state;
}

std::vector<UnitBuffer> UnitUpdate::keep(std::span<const SlotRule> rules) {
  std::vector<UnitBuffer> buffers;
  for (const SlotRule& rule : rules) buffers.push_back(add_kept(rule));
  // By parameters, so that the padding of the unit does not matter to other numbers of ranks.
  for (size_t p = 0; p < parameters_.size(); ++p)
    for (size_t k = 0; k < rules.size(); ++k)
      program_.codec_state.push_back(kept_of(p, rules[k], buffers[k]));
  return buffers;
}

Instruction& UnitUpdate::emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                              std::vector<BufferId> writes) {
  Instruction& added = program_.add_at_end(op, std::move(reads), std::move(writes), group_);
  added.attrs = std::move(attrs);
  return added;
}

void UnitUpdate::emit_first(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                            std::vector<BufferId> writes) {
  first_.push_back({.op = op,
                    .when = When::step_begin,
                    .attrs = std::move(attrs),
                    .reads = std::move(reads),
                    .writes = std::move(writes),
                    .group = group_});
}

void UnitUpdate::emit_update(OpKind op, OpAttrs attrs, Range range, size_t slots, size_t first) {
  std::vector<BufferId> reads{gradients(range)}, writes{master(range)};
  for (size_t i = first; i < first + slots; ++i) writes.push_back(slot(i, range));
  writes.push_back(copy(range));
  emit(op, std::move(attrs), std::move(reads), std::move(writes));
}

}  // namespace dstrain
