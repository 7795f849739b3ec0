#include <utility>

#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/gradient_codecs.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

GradientCodec::GradientCodec(const CodecPlan& plan, int unit)
    : plan_(plan), unit_(unit), axes_(adds_of(this->unit(), plan.residency.adds)) {}

BufferId GradientCodec::slice_of(const UnitBuffer& buffer) const {
  const Range slice = owned_slice(unit(), plan_.place, axes_);
  const int64_t at = position_of(buffer, unit(), plan_.place, slice.begin);
  return program().view(buffer.id, at, slice.size());
}

WireGradients::WireGradients(const CodecPlan& plan, int unit)
    : GradientCodec(plan, unit), added_{0, this->unit().elements} {}

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
                                                .memory = MemoryClass::communication});
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
  const auto add_to_step = [&](BufferId from, BufferId to) {
    add(list, {.op = OpKind::accumulate,
               .accumulate = each_micro() ? Accumulate::after_first_micro : Accumulate::never,
               .reads = {from},
               .writes = {to}});
  };
  if (scattered()) return add_to_step(slice_of(sent_), slice_of(gradients));
  if (sent_.id != unit().buffers.wire.id) return add_to_step(sent_.id, gradients.id);
  if (added_.size() > 0) add_to_step(sent_.id, added(gradients.id));
  // Those that ranks do not add have not been on the wire.
  if (added_.begin > 0 && each_micro())
    add_to_step(program().view(own().id, 0, added_.begin),
                program().view(gradients.id, 0, added_.begin));
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
