#include <utility>

#include "runtime/ir/quantized.h"
#include "runtime/plan/codecs/gradient_codecs.h"
#include "runtime/plan/codecs/lost_values.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

Int4Gradients::Int4Gradients(const CodecPlan& plan, int unit, StepGradients& step)
    : GradientCodec(plan, unit, step), part_(this->unit().elements / plan.place.ranks_in(axes())) {}

void Int4Gradients::send(const Instruction& like, std::vector<Instruction>& list) {
  like_ = like;
  const Place& place = plan().place;
  const Axes within = within_replica(axes());
  const int64_t ranks = place.ranks_in(axes()), rank = place.rank_in(axes());
  const bool two_hops = unit().codecs.sums == CodecKind::int4_blocks;
  const int64_t group = two_hops ? place.ranks_in(within) : 1;
  const BufferId packed = add_packed("packed_grads", {ranks, int4_bytes(part_)});
  Instruction pack = issued(OpKind::quantize_int4, own().id, packed);
  pack.attrs = Int4Attrs{.part = part_, .group = group};
  feed_back(pack, "send_error");
  list.push_back(std::move(pack));
  received_ = exchange(packed, "received_grads", two_hops ? within : axes(), list);
  forwarded_ = !two_hops;
  measure("gradients", program().view(own().id, rank * part_, part_), packed,
          rank % group * (ranks / group) + rank / group, list);
}

// Packs what has come from the group and sends it to the ranks that own it.
void Int4Gradients::forward(std::vector<Instruction>& list) {
  if (std::exchange(forwarded_, true)) return;
  const Shape parts = program().at(received_).shape;
  const BufferId sums = std::exchange(received_, kNone);
  const BufferId packed = add_packed("packed_sums", {parts[1], parts[2]});
  Instruction pack = issued(OpKind::requantize_int4, sums, packed);
  pack.attrs = Int4Attrs{.part = part_};
  feed_back(pack, "sum_error");
  list.push_back(std::move(pack));
  received_ = exchange(packed, "received_sums", Axis::replica, list);
  const int64_t mine = plan().place.replica();
  if (plan().residency.measures_codecs)
    measure("sums", unpack(sums, mine, list), packed, mine, list);
}

void Int4Gradients::receive(std::vector<Instruction>& list) {
  forward(list);
  const UnitBuffer& gradients = unit().buffers.gradients;
  const BufferId target = slice_of(gradients);
  const BufferId sum = each_micro() ? program().add_buffer({.name = "summed:" + unit().name,
                                                            .shape = {part_},
                                                            .memory = MemoryClass::communication})
                                    : target;
  list.push_back(issued(OpKind::sum_int4, received_, sum));
  list.back().attrs = Int4Attrs{.part = part_};
  if (sum != target) add_to_step(like_, sum, target, list);
  // Where nothing else clears the padding before the next step.
  if (gradients.held == Held::whole && program().at(gradients.id).dtype == DType::f32)
    clear_padding(gradients.id, list);
}

// Returns an instruction that is issued with the others of this transfer.
Instruction Int4Gradients::issued(OpKind kind, BufferId read, BufferId write) const {
  Instruction op = like_;
  op.op = kind;
  op.reads = {read};
  op.writes = {write};
  return op;
}

BufferId Int4Gradients::add_packed(const std::string& what, Shape shape) const {
  return program().add_buffer({.name = what + ":" + unit().name,
                               .shape = shape,
                               .dtype = DType::u8,
                               .memory = MemoryClass::communication});
}

// Sends packed parts, as many to each rank of the group. Returns what is received: parts by sender.
BufferId Int4Gradients::exchange(BufferId packed, const std::string& what, Axes group,
                                 std::vector<Instruction>& list) const {
  const int ranks = plan().place.ranks_in(group);
  const Shape parts = program().at(packed).shape;
  const BufferId received = add_packed(what, {ranks, parts[0] / ranks, parts[1]});
  list.push_back(issued(OpKind::all_to_all, packed, received));
  list.back().channel = channel_of(plan().place, group);
  return received;
}

// LoCo: lets `pack` take up what it lost the step before. What it loses now replaces that once the step is known not to be
// skipped.
void Int4Gradients::feed_back(Instruction& pack, const std::string& slot) const {
  const QuantizeConfig& quantize = plan().job.quantize;
  if (!quantize.feedback) return;
  auto& attrs = std::get<Int4Attrs>(pack.attrs);
  attrs.error_beta = quantize.error_beta;
  attrs.error_steps = quantize.error_steps;
  const auto add = [&](const std::string& name, Lifetime lifetime) {
    return program().add_buffer(
        {.name = name + ":" + unit().name,
         .shape = {program().at(pack.writes[0]).shape[0], quantized_bytes(attrs.part)},
         .dtype = DType::u8,
         .memory = MemoryClass::communication,
         .lifetime = lifetime});
  };
  const BufferId error = add(slot, Lifetime::persistent);
  const BufferId next = add("next_" + slot, Lifetime::step);
  pack.reads.push_back(error);
  pack.writes.push_back(next);
  if (pack.when == When::every_micro) pack.accumulate = Accumulate::after_first_micro;
  program().codec_state.push_back(
      {.name = unit().name, .slot = slot, .values = error, .per_rank = true, .residual = true});
  program().commits.push_back({.next = next, .state = error});
}

// Appends what compares `exact` with what comes back of it: part `first` of `packed`.
void Int4Gradients::measure(std::string_view of, BufferId exact, BufferId packed, int64_t first,
                            std::vector<Instruction>& list) const {
  if (!plan().residency.measures_codecs) return;
  const BufferId back = unpack(packed, first, list);
  list.push_back(measure_loss(program(), unit_index(), of, exact, back, like_));
}

// Appends the unpacking of one part, a sum over its senders. Returns its buffer.
BufferId Int4Gradients::unpack(BufferId packed, int64_t first,
                               std::vector<Instruction>& list) const {
  const BufferId values = program().add_buffer({.name = "measured:" + program().at(packed).name,
                                                .shape = {part_},
                                                .memory = MemoryClass::workspace});
  Instruction op = once_a_step(issued(OpKind::sum_int4, packed, values));
  op.attrs = Int4Attrs{.part = part_, .first = first};
  list.push_back(std::move(op));
  return values;
}

// Writes zeros between the parameters of the rank's part: a NaN of a parameter may have come back in the whole of its
// block.
void Int4Gradients::clear_padding(BufferId gradients, std::vector<Instruction>& list) const {
  const Range owned = owned_slice(unit(), plan().place);
  int64_t at = 0;
  const auto clear_until = [&](int64_t end) {
    const Range gap = common({at, end}, owned);
    if (gap.size() <= 0) return;
    const BufferId zeros = program().view(gradients, gap.begin, gap.size());
    list.push_back(issued(OpKind::zero, zeros, zeros));
    list.back().reads.clear();
  };
  for (const int index : unit().parameters) {
    const Parameter& p = program().parameter(index);
    if (p.gradient == kNone) continue;
    clear_until(p.offset);
    at = elements_of(p).end;
  }
  clear_until(unit().elements);
}

}  // namespace dstrain
