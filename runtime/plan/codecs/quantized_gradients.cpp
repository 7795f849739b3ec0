// qgZ: gradients travel as int4 (runtime/ir/quantized.h) straight to the ranks that add them, instead of a
// reduce-scatter. Groups of ranks of a host take two hops: within the group, where each rank adds what its peers have
// for the ranks with its number in all groups, and then among those. Sums are f32, in the order of ranks and then of
// groups, and each hop packs once.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/ir/quantized.h"
#include "runtime/plan/codecs/codecs.h"

namespace dstrain {
namespace {

// A unit's gradients on their way.
struct Sum {
  Instruction like;           // the reduce-scatter
  Axes axes;                  // along which ranks add
  BufferId received = kNone;  // packed
  bool forwarded = false;     // the last hop has begun
  bool in_place = false;      // nothing adds the result to other gradients
};

class QuantizeSums {
 public:
  QuantizeSums(Program& program, const Job& job, Place place, const Residency& residency)
      : program_(program),
        place_(place),
        most_in_flight_(job.overlap_comm ? kMostUnits : 0),
        quantize_(job.quantize),
        axes_(axes_of_state(program)),
        keeps_padding_(residency.gradients == Held::whole && residency.grad_dtype == DType::f32) {}

  void run() {
    const std::vector<Instruction> old = std::exchange(program_.instructions, {});
    find_casts(old);
    for (const Instruction& op : old) {
      if (!sums_.empty() &&
          (op.phase != sums_.back().like.phase || op.chunk != sums_.back().like.chunk))
        finish_in_place(0);
      if (op.op == OpKind::cast && sent_.contains(op.writes[0]))
        continue;  // int4 is made of what it reads
      if (adds_gradients(op))
        begin(op);
      else if (op.op == OpKind::accumulate && on_its_way(op))
        finish(op);
      else
        program_.instructions.push_back(op);
    }
    finish_in_place(0);
  }

 private:
  static constexpr size_t kMostUnits = 2;

  BufferId root(BufferId id) const { return program_.root(id); }
  bool adds_gradients(const Instruction& op) const {  // else rows of a tensor group
    return op.op == OpKind::reduce_scatter && axes_.contains(root(op.reads[0]));
  }

  void find_casts(const std::vector<Instruction>& list) {
    for (const Instruction& op : list) {
      if (adds_gradients(op)) sent_.insert(op.reads[0]);
      if (op.op == OpKind::accumulate) added_.insert(root(op.reads[0]));
    }
    for (const Instruction& op : list)
      if (op.op == OpKind::cast && sent_.contains(op.writes[0]))
        source_[op.writes[0]] = op.reads[0];
  }

  // Returns whether `op` adds a sum that has been sent.
  bool on_its_way(const Instruction& op) const {
    return !sums_.empty() && root(sums_.front().like.reads[0]) == root(op.reads[0]);
  }

  Instruction& emit(const Sum& sum, OpKind kind, BufferId read, BufferId write) {
    Instruction op = sum.like;
    op.op = kind;
    op.attrs = {};
    op.reads = {read};
    op.writes = {write};
    program_.instructions.push_back(std::move(op));
    return program_.instructions.back();
  }
  BufferId add_packed(const Sum& sum, const std::string& name, Shape shape) {
    const std::string& of = program_.at(root(sum.like.reads[0])).name;
    return program_.add_buffer({.name = name + of.substr(of.find(':')),
                                .shape = shape,
                                .dtype = DType::u8,
                                .memory = MemoryClass::communication});
  }

  // Sends packed parts, as many to each rank of the group. Returns what is received: parts by sender.
  BufferId exchange(const Sum& sum, BufferId packed, const std::string& name, Axes group) {
    const int ranks = place_.ranks_in(group);
    const Shape parts = program_.at(packed).shape;
    const BufferId received = add_packed(sum, name, {ranks, parts[0] / ranks, parts[1]});
    emit(sum, OpKind::all_to_all, packed, received).channel = channel_of(place_, group);
    return received;
  }

  // LoCo: lets `pack` take up what it lost the step before. What it loses now replaces that once the step is known not
  // to be skipped.
  void feed_back(const Sum& sum, Instruction& pack, const std::string& slot) {
    if (!quantize_.feedback) return;
    auto& attrs = std::get<Int4Attrs>(pack.attrs);
    attrs.error_beta = quantize_.error_beta;
    attrs.error_steps = quantize_.error_steps;
    const std::string& of = program_.at(root(sum.like.reads[0])).name;
    const std::string unit = of.substr(of.find(':') + 1);
    const auto add = [&](const std::string& name, Lifetime lifetime) {
      return program_.add_buffer(
          {.name = name + ":" + unit,
           .shape = {program_.at(pack.writes[0]).shape[0], quantized_bytes(attrs.part)},
           .dtype = DType::u8,
           .memory = MemoryClass::communication,
           .lifetime = lifetime});
    };
    const BufferId error = add(slot, Lifetime::persistent);
    const BufferId next = add("next_" + slot, Lifetime::step);
    pack.reads.push_back(error);
    pack.writes.push_back(next);
    if (pack.when == When::every_micro) pack.accumulate = Accumulate::after_first_micro;
    program_.codec_state.push_back({.name = unit, .slot = slot, .values = error, .per_rank = true});
    program_.commits.push_back({.next = next, .state = error});
  }

  void begin(const Instruction& op) {
    const Axes axes = axes_.at(root(op.reads[0])), within = within_replica(axes);
    Sum sum{.like = op, .axes = axes, .in_place = !added_.contains(root(op.reads[0]))};
    const auto cast = source_.find(op.reads[0]);
    const BufferId gradients = cast == source_.end() ? op.reads[0] : cast->second;
    const int64_t part = program_.at(op.writes[0]).shape.elements();
    const BufferId packed =
        add_packed(sum, "packed_grads", {place_.ranks_in(axes), int4_bytes(part)});
    const int64_t group = place_.factored() ? place_.ranks_in(within) : 1;
    Instruction& pack = emit(sum, OpKind::quantize_int4, gradients, packed);
    pack.attrs = Int4Attrs{.part = part, .group = group};
    feed_back(sum, pack, "send_error");
    sum.received = exchange(sum, packed, "received_grads", place_.factored() ? within : axes);
    sum.forwarded = !place_.factored();
    for (Sum& before : sums_) forward(before);
    sums_.push_back(std::move(sum));
    finish_in_place(most_in_flight_);
  }

  // Packs what has come from the group and sends it to the ranks that own it.
  void forward(Sum& sum) {
    if (std::exchange(sum.forwarded, true)) return;
    const Shape parts = program_.at(sum.received).shape;
    const BufferId packed = add_packed(sum, "packed_sums", {parts[1], parts[2]});
    Instruction& pack = emit(sum, OpKind::requantize_int4, sum.received, packed);
    pack.attrs = part_of(sum);
    feed_back(sum, pack, "sum_error");
    sum.received = exchange(sum, packed, "received_sums", Axis::replica);
  }

  Int4Attrs part_of(const Sum& sum) const {
    return {.part = program_.at(sum.like.writes[0]).shape.elements()};
  }

  // Ends the oldest sum: in place of its reduce-scatter, or for `op`, which adds it to the step's gradients.
  void finish(Instruction op) {
    Sum sum = std::move(sums_.front());
    sums_.pop_front();
    forward(sum);
    const Int4Attrs attrs = part_of(sum);
    const BufferId target = op.writes[0];
    if (sum.in_place) {
      emit(sum, OpKind::sum_int4, sum.received, target).attrs = attrs;
      return clear_padding(sum, target);
    }
    const std::string& of = program_.at(root(sum.like.reads[0])).name;
    const BufferId added = program_.add_buffer({.name = "summed" + of.substr(of.find(':')),
                                                .shape = {attrs.part},
                                                .memory = MemoryClass::communication});
    emit(sum, OpKind::sum_int4, sum.received, added).attrs = attrs;
    op.reads = {added};
    program_.instructions.push_back(std::move(op));
    clear_padding(sum, target);
  }

  // Writes zeros between the parameters of the rank's part, where nothing else does before the next step: a NaN of a
  // parameter may have come back in the whole of its block.
  void clear_padding(const Sum& sum, BufferId target) {
    if (!keeps_padding_) return;
    const auto unit = std::ranges::find_if(
        program_.units, [&](const Unit& u) { return u.buffers.gradients.id == root(target); });
    const Range owned = owned_slice(*unit, place_);
    int64_t at = 0;
    const auto clear_until = [&](int64_t end) {
      const Range gap = common({at, end}, owned);
      if (gap.size() <= 0) return;
      const BufferId zeros = program_.view(root(target), gap.begin, gap.size());
      emit(sum, OpKind::zero, zeros, zeros).reads.clear();
    };
    for (const int index : unit->parameters) {
      const Parameter& p = program_.parameters[static_cast<size_t>(index)];
      if (p.gradient == kNone) continue;
      clear_until(p.offset);
      at = elements_of(p).end;
    }
    clear_until(unit->elements);
  }
  void finish_in_place(size_t most) {
    while (sums_.size() > most && sums_.front().in_place) finish(sums_.front().like);
  }

  Program& program_;
  const Place place_;
  const size_t most_in_flight_;
  const QuantizeConfig quantize_;
  const std::unordered_map<BufferId, Axes> axes_;  // of gradients, and of what is sent of them
  const bool keeps_padding_;                       // of the step's gradients, from step to step
  std::unordered_set<BufferId> sent_;              // what reduce-scatters read
  std::unordered_set<BufferId> added_;             // what is added to the step's gradients
  std::unordered_map<BufferId, BufferId> source_;  // of casts to the wire's dtype
  std::deque<Sum> sums_;
};

}  // namespace

void quantize_gradients(Program& program, const Job& job, Place place, const Residency& residency) {
  if (job.quantize.gradients && residency.optimizer != Held::whole)
    QuantizeSums(program, job, place, residency).run();
}

}  // namespace dstrain
