// Gradients of the experts that an expert group divides: a rank has a term of its experts' gradients for each rank of the group.
#include <algorithm>
#include <utility>

#include "runtime/ir/formula/formula.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/gradient_codecs.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

ExpertTerms::ExpertTerms(const CodecPlan& plan, int unit, StepGradients& step)
    : GradientCodec(plan, unit, step),
      ranks_(plan.place.ranks_in(axes())),
      terms_(plan.place.ranks_in(Axis::expert)),
      slice_(this->unit().elements / ranks_) {}

void ExpertTerms::send(const Instruction& like, std::vector<Instruction>& list) {
  like_ = like;
  parts_ = add_buffer("terms", ranks_ * terms_ * slice_);
  int64_t at = 0;
  for (const int index : unit().parameters) {
    const Parameter& p = program().parameter(index);
    if (p.gradient == kNone) continue;
    zero({at, p.offset}, list);
    at = p.offset + program().at(p.gradient).shape.elements() / terms_;
    pack(p, {p.offset, at}, list);
  }
  zero({at, unit().elements}, list);
  if (ranks_ == 1) return;
  const BufferId received = add_buffer("received_terms", ranks_ * terms_ * slice_);
  emit({.op = OpKind::all_to_all, .reads = {parts_}, .writes = {received}}, list);
  parts_ = received;
}

void ExpertTerms::receive(std::vector<Instruction>& list) {
  const UnitBuffer& gradients = unit().buffers.gradients;
  const BufferId sum = add_terms(list);
  if (ranks_ == 1 || scattered()) return add_to_step(like_, sum, slice_of(gradients), list);
  const BufferId whole = add_buffer("summed_terms", unit().elements);
  emit({.op = OpKind::all_gather, .reads = {sum}, .writes = {whole}}, list);
  add_to_step(like_, whole, gradients.id, list);
}

// Appends the casts of some elements of the unit, each term, to where the rank that owns them takes them.
void ExpertTerms::pack(const Parameter& p, Range elements, std::vector<Instruction>& list) {
  const int64_t of_term = elements.size();
  for_slices(elements, [&](Range here, int64_t term, BufferId to) {
    const int64_t from = term * of_term + here.begin - elements.begin;
    emit({.op = OpKind::cast,
          .reads = {program().view(p.gradient, from, here.size())},
          .writes = {to}},
         list);
  });
}

void ExpertTerms::zero(Range elements, std::vector<Instruction>& list) {
  for_slices(elements, [&](Range, int64_t, BufferId to) {
    emit({.op = OpKind::zero, .writes = {to}}, list);
  });
}

template <class Take>
void ExpertTerms::for_slices(Range elements, const Take& take) {
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    const Range here = common(elements, {rank * slice_, (rank + 1) * slice_});
    if (here.size() <= 0) continue;
    for (int64_t term = 0; term < terms_; ++term)
      take(here, term,
           program().view(parts_, (rank * terms_ + term) * slice_ + here.begin - rank * slice_,
                          here.size()));
  }
}

// Appends the sum of what has come, in the order of data-parallel ranks, in f32. It is rounded once.
BufferId ExpertTerms::add_terms(std::vector<Instruction>& list) {
  constexpr int64_t kMost = Formula::kMostInputs;
  const int64_t all = ranks_ * terms_;
  const auto term = [&](int64_t i) { return program().view(parts_, i * slice_, slice_); };
  BufferId sum = term(0);
  for (int64_t done = 1; done < all;) {
    const int64_t more = std::min(all - done, kMost - 1);
    Instruction add{.op = OpKind::map, .reads = {sum}};
    Formula formula = Formula::input(0);
    for (int64_t i = 0; i < more; ++i) {
      formula = formula + Formula::input(static_cast<int>(i + 1));
      add.reads.push_back(term(done + i));
    }
    done += more;
    add.attrs = MapAttrs{.formula = formula};
    sum = add_buffer("sum_of_terms", slice_, done < all ? DType::f32 : plan().residency.wire_dtype);
    add.writes = {sum};
    emit(std::move(add), list);
  }
  return sum;
}

BufferId ExpertTerms::add_buffer(const std::string& what, int64_t elements,
                                 std::optional<DType> dtype) const {
  return program().add_buffer({.name = what + ":" + unit().name,
                               .shape = {elements},
                               .dtype = dtype.value_or(plan().residency.wire_dtype),
                               .memory = MemoryClass::communication,
                               .role = BufferRole::gradients});
}

void ExpertTerms::emit(Instruction op, std::vector<Instruction>& list) const {
  op.when = like_.when;
  op.group = like_.group;
  op.phase = like_.phase;
  op.chunk = like_.chunk;
  if (is_collective(op.op)) op.channel = channel_of(plan().place, axes());
  list.push_back(std::move(op));
}

}  // namespace dstrain
