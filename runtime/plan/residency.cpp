#include "runtime/plan/residency.h"

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

// Gradients of several micro-batches are added one by one. Where groups of ranks have weights of their own, gradients
// hold these between two steps, while the average is validated or saved.
Lifetime gradients_live(const Job& job) {
  return job.batch.accumulation > 1 || local_groups(job) > 1 ? Lifetime::persistent
                                                             : Lifetime::step;
}

}  // namespace

Residency residency_of(const Job& job, const Place& place) {
  Residency r{.grad_dtype = job.grad_dtype,
              .gradients_live = gradients_live(job),
              .reduce = job.reduce,
              .wire_dtype = job.wire_dtype};
  if (place.ranks() > 1) {
    const auto sliced = [](bool yes) { return yes ? Held::slice : Held::whole; };
    r.optimizer = sliced(job.zero_stage >= 1);
    r.gradients = sliced(job.zero_stage >= 2 && job.reduce == ReduceMode::micro_batch);
    r.parameters = sliced(job.zero_stage >= 3);
    // Quantized shards are made of the slices at the beginning of a step (PackedShards).
    const bool shards = place.replicas_hold() && place.replicas() > 1 && !job.quantize.weights;
    if (r.parameters == Held::slice && shards)
      r.parameters = place.factored() ? Held::shard : Held::whole;
  }
  return r;
}

Residency step_residency(const Job& job, const Place& place, StepKind kind) {
  Residency r = residency_of(job, place);
  const bool in_groups = updates_in_groups(job, kind);
  if (in_groups) r.adds = kShardAxes;
  if (sends_factors(job, place, kind)) {
    r.codecs.gradients = CodecKind::low_rank;
  } else if (keeps_gradients(job, kind) || (in_groups && place.ranks_in(r.adds) == 1)) {
    r.codecs.gradients = CodecKind::not_sent;
    r.reduce = ReduceMode::boundary;
    r.wire_dtype = DType::f32;
  } else if (job.quantize.gradients && r.optimizer != Held::whole) {
    r.codecs.gradients = CodecKind::int4_blocks;
    if (place.factored()) r.codecs.sums = CodecKind::int4_blocks;
  }
  if (job.quantize.weights && r.parameters != Held::whole)
    r.codecs.parameters = CodecKind::int8_blocks;
  r.measures_codecs = job.quantize != QuantizeConfig{};
  return r;
}

Residency unit_residency(const Residency& residency, const Unit& unit, const Place& place) {
  Residency own = residency;
  if (place.ranks_in(adds_of(unit, residency.adds)) == 1)
    own.optimizer = own.gradients = own.parameters = Held::whole;
  return own;
}

bool keeps_gradients(const Job& job, StepKind kind) {
  return kind != StepKind::whole_gradients && freezes(job.optimizer);
}

bool sends_factors(const Job& job, const Place& place, StepKind kind) {
  const bool power =
      job.hook.kind == HookKind::power_sgd || job.hook.kind == HookKind::batched_power_sgd;
  return power && place.ranks() > 1 && kind == StepKind::regular;
}

bool updates_in_groups(const Job& job, StepKind kind) {
  return local_groups(job) > 1 && kind != StepKind::whole_gradients;
}

int divisor(Held held, const Place& place, Axes slices) {
  return held == Held::whole   ? 1
         : held == Held::shard ? place.ranks_in(within_replica(slices))
                               : place.ranks_in(slices);
}

Range owned_slice(const Unit& unit, const Place& place, Axes axes) {
  const int64_t slice = unit.elements / place.ranks_in(axes), rank = place.rank_in(axes);
  return {rank * slice, (rank + 1) * slice};
}

int64_t most_in_flight(const Program& program) {
  constexpr int64_t kShare = 6;
  int64_t elements = 0;
  for (const Unit& unit : program.units) elements += unit.elements;
  return elements / kShare;
}

UnitBuffer unit_buffer(BufferId id, Held held, Axes slices) {
  const Axes divided = held == Held::whole   ? Axes()
                       : held == Held::shard ? within_replica(slices)
                                             : slices;
  return {.id = id, .held = held, .divided = divided};
}

Range range_of(const UnitBuffer& buffer, const Unit& unit, const Place& place) {
  switch (buffer.held) {
    case Held::whole:
      return {0, unit.elements};
    case Held::shard:
      return owned_slice(unit, place);
    case Held::slice:
      break;
  }
  return owned_slice(unit, place, buffer.divided);
}

int64_t position_of(const UnitBuffer& buffer, const Unit& unit, const Place& place,
                    int64_t element) {
  if (buffer.partial) {
    int64_t before = 0;
    for (const Range& range : *buffer.partial) {
      if (element >= range.begin && element < range.end)
        return (before + element - range.begin) / buffer.block;
      before += range.size();
    }
    throw InternalError(fmt::format("state of {} does not have element {}", unit.name, element));
  }
  const Range own = range_of(buffer, unit, place);
  const int64_t before = buffer.held == Held::shard ? place.replica() * own.size() : 0;
  return (before + element - own.begin) / buffer.block;
}

}  // namespace dstrain
