#include <utility>

#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/gradient_codecs.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

GradientCodec::GradientCodec(const CodecPlan& plan, int unit, StepGradients& step)
    : plan_(plan), step_(step), unit_(unit), axes_(adds_of(this->unit(), plan.residency.adds)) {}

BufferId GradientCodec::slice_of(const UnitBuffer& buffer) const {
  const Range slice = owned_slice(unit(), plan_.place, axes_);
  const int64_t at = position_of(buffer, unit(), plan_.place, slice.begin);
  return program().view(buffer.id, at, slice.size());
}

void GradientCodec::add_to_step(const Instruction& like, BufferId sum, BufferId gradients,
                                std::vector<Instruction>& list) const {
  Instruction add = like;
  add.op = OpKind::accumulate;
  add.accumulate = each_micro() ? Accumulate::after_first_micro : Accumulate::never;
  add.reads = {sum};
  add.writes = {gradients};
  step_.add(unit(), slice_of(unit().buffers.gradients), std::move(add), list);
}

WireGradients::WireGradients(const CodecPlan& plan, int unit, StepGradients& step)
    : GradientCodec(plan, unit, step), added_{0, this->unit().elements} {}

bool WireGradients::alone() const {
  return plan().place.ranks_in(axes()) == 1;
}

void WireGradients::send(const Instruction& like, std::vector<Instruction>& list) {
  like_ = like;
  sent_ = own();
  if (added_.size() == 0) return;
  const DType held = program().at(sent_.id).dtype, wire = plan().residency.wire_dtype;
  BufferId mine = added(sent_.id);
  if (alone() && held == DType::f32) {
    if (narrow())
      add(list,
          {.op = OpKind::round_wire, .attrs = WireAttrs{wire}, .reads = {mine}, .writes = {mine}});
    return;
  }
  if (held != wire && (!alone() || narrow())) {
    const BufferId cast = program().add_buffer({.name = "wire:" + unit().name,
                                                .shape = {added_.size()},
                                                .dtype = wire,
                                                .memory = MemoryClass::communication,
                                                .role = BufferRole::gradients});
    add(list, {.op = OpKind::cast, .reads = {mine}, .writes = {cast}});
    sent_ = unit().buffers.wire = {.id = cast};
    mine = cast;
  }
  if (alone()) return;
  if (scattered())
    add(list, {.op = OpKind::reduce_scatter, .reads = {mine}, .writes = {slice_of(sent_)}});
  else
    add(list, {.op = OpKind::all_reduce, .reads = {mine}, .writes = {mine}});
}

void WireGradients::receive(std::vector<Instruction>& list) {
  const UnitBuffer& gradients = unit().buffers.gradients;
  if (sent_.id == gradients.id) return;
  if (scattered()) return add_to_step(like_, slice_of(sent_), slice_of(gradients), list);
  if (sent_.id != unit().buffers.wire.id) return add_to_step(like_, sent_.id, gradients.id, list);
  if (added_.size() > 0) add_to_step(like_, sent_.id, added(gradients.id), list);
  // Those that ranks do not add have not been on the wire.
  if (added_.begin > 0 && each_micro())
    add_to_step(like_, program().view(own().id, 0, added_.begin),
                program().view(gradients.id, 0, added_.begin), list);
}

void WireGradients::add(std::vector<Instruction>& list, Instruction op) const {
  op.when = like_.when;
  op.group = like_.group;
  op.phase = like_.phase;
  op.chunk = like_.chunk;
  if (is_collective(op.op)) op.channel = channel_of(plan().place, axes());
  list.push_back(std::move(op));
}

}  // namespace dstrain
