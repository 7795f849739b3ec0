#include "runtime/ir/gradients.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Returns whether an instruction reads the packed blocks of a weight: it unpacks them.
bool reads_blocks(const Program& program, const Instruction& op) {
  return std::ranges::any_of(op.reads, [&program](BufferId id) {
    const int index = id == kNone ? -1 : program.at(id).parameter;
    return index >= 0 && program.parameters[static_cast<size_t>(index)].blocks != BlockFormat::none;
  });
}

// Returns whether gradients end at an instruction.
bool is_detached(const Instruction& op) {
  const auto* map = std::get_if<MapAttrs>(&op.attrs);
  const auto* reduce = std::get_if<ReduceAttrs>(&op.attrs);
  return (map && map->detached) || (reduce && reduce->detached);
}

}  // namespace

BufferId Gradients::of(BufferId value) const {
  const auto it = gradient_.find(value);
  return it == gradient_.end() ? kNone : it->second;
}

bool Gradients::needs(BufferId value) const {
  if (value == kNone) return false;
  if (const int index = program_.at(value).parameter; index >= 0)
    return !program_.parameters[static_cast<size_t>(index)].frozen;
  return static_cast<size_t>(value) < needs_.size() && needs_[static_cast<size_t>(value)];
}

void Gradients::mark(const Instruction& op) {
  if (reads_blocks(program_, op)) unpacked_[op.writes[0]] = op;
  if (is_detached(op)) return;
  bool any = false;
  for (BufferId id : op.reads) any = any || needs(id);
  needs_.resize(program_.buffers.size());
  if (any)
    for (BufferId id : op.writes)
      if (id != kNone) needs_[static_cast<size_t>(id)] = program_.at(id).dtype != DType::i32;
}

BufferId Gradients::again(BufferId value) {
  const auto found = unpacked_.find(value);
  if (found == unpacked_.end()) return value;
  Buffer copy = program_.at(value);
  copy.name = "again:" + copy.name;
  copy.copy_of = value;
  const BufferId unpacked = program_.add_buffer(std::move(copy));
  emit(found->second.op, found->second.attrs, found->second.reads, {unpacked});
  return unpacked;
}

BufferId Gradients::like(BufferId value) {
  const Buffer& v = program_.at(value);
  return program_.add_buffer({.name = "d_" + v.name, .shape = v.shape, .dtype = v.dtype});
}

BufferId Gradients::fresh(BufferId value, DType dtype) {
  return fresh(value, program_.at(value).shape, dtype);
}

BufferId Gradients::fresh(BufferId value, const Shape& shape, DType dtype) {
  return program_.add_buffer(
      {.name = "of_" + program_.at(value).name, .shape = shape, .dtype = dtype});
}

void Gradients::contribute(BufferId value, BufferId gradient) {
  const BufferId before = of(value);
  if (before == kNone) {
    gradient_[value] = gradient;
    ++uses_[gradient];
    return;
  }
  const BufferId sum = like(value);
  emit(OpKind::add, {}, {before, gradient}, {sum});
  replace(value, sum);
}

void Gradients::settle(const Instruction& op) {
  for (const BufferId value : op.reads) {
    if (value == kNone || program_.at(value).parameter < 0 || of(value) == kNone) continue;
    const Shape& own = program_.at(value).shape;
    const Shape space = own.rank == 0 ? Shape{1} : own;
    const MapAttrs same{.formula = Formula::input(0), .space = space, .views = {dense_view(space)}};
    emit_weight(OpKind::map, same, {of(value)}, {value});
    gradient_.erase(value);
  }
}

void Gradients::replace(BufferId value, BufferId gradient) {
  if (const BufferId before = of(value); before != kNone) --uses_[before];
  gradient_[value] = gradient;
  ++uses_[gradient];
}

bool Gradients::exclusive(BufferId gradient) const {
  const auto it = uses_.find(gradient);
  return it != uses_.end() && it->second == 1;
}

BufferId Gradients::place_of(BufferId value, BufferId gradient) {
  const bool alike = program_.at(value).shape == program_.at(gradient).shape;
  return alike && exclusive(gradient) ? gradient : like(value);
}

Instruction& Gradients::emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                             std::vector<BufferId> writes) {
  program_.instructions.push_back({.op = op,
                                   .attrs = std::move(attrs),
                                   .reads = std::move(reads),
                                   .writes = std::move(writes),
                                   .group = group_,
                                   .phase = Phase::backward,
                                   .sublayer = sublayer_});
  return program_.instructions.back();
}

BufferId Gradients::weight_gradient(BufferId value, int64_t terms, Accumulate* mode) {
  const int index = program_.at(value).parameter;
  check(index >= 0, "{} is not a parameter", program_.at(value).name);
  Parameter& p = program_.parameters[static_cast<size_t>(index)];
  if (p.gradient == kNone) {
    Shape shape = program_.at(value).shape;
    if (terms > 1) shape.dims[0] *= terms;
    p.gradient_terms = terms;
    p.gradient = program_.add_buffer({.name = "grad:" + p.name,
                                      .shape = shape,
                                      .dtype = DType::f32,
                                      .memory = MemoryClass::gradients,
                                      .lifetime = Lifetime::persistent,
                                      .role = BufferRole::gradients});
    *mode = Accumulate::after_first_micro;
  } else {  // a tied parameter: later uses add to the gradient of the first one
    check(p.gradient_terms == terms, "the gradient of {} has other terms", p.name);
    *mode = Accumulate::always;
  }
  return p.gradient;
}

void Gradients::emit_weight(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                            const std::vector<BufferId>& values, int64_t terms) {
  Instruction instruction{.op = op,
                          .attrs = std::move(attrs),
                          .reads = std::move(reads),
                          .group = group_,
                          .phase = Phase::backward,
                          .sublayer = sublayer_};
  bool any = false;
  for (const BufferId value : values) {
    if (!needs(value)) {
      instruction.writes.push_back(kNone);
      continue;
    }
    instruction.writes.push_back(weight_gradient(value, terms, &instruction.accumulate));
    any = true;
  }
  if (any) program_.instructions.push_back(std::move(instruction));
}

void Gradients::emit_weights_together(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                                      std::vector<BufferId> values) {
  const size_t before = program_.instructions.size();
  emit_weight(op, std::move(attrs), std::move(reads), values);
  if (program_.instructions.size() == before) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (program_.instructions.back().writes[i] != kNone) continue;
    const auto known = unread_.find(values[i]);
    const BufferId unread =
        known != unread_.end()
            ? known->second
            : program_.add_buffer({.name = "unread_grad:" + program_.at(values[i]).name,
                                   .shape = program_.at(values[i]).shape,
                                   .memory = MemoryClass::gradients,
                                   .lifetime = Lifetime::step});
    unread_[values[i]] = unread;
    program_.instructions.back().writes[i] = unread;
  }
}

}  // namespace dstrain
