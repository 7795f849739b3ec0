// Where model state is held in the data-parallel group, replicated or sharded, and how it travels, for each class of
// state. ZeRO's stages and FSDP's sharding strategies are rows of the table below. Passes and memory estimates ask
// a Residency, never for a stage. Only the configuration, messages about it, and `fit`, which proposes a
// higher stage, know stages.
//
//   stage  FSDP           optimizer  gradients  parameters
//   0      NO_SHARD       whole      whole      whole
//   1      -              slice      whole      whole
//   2      SHARD_GRAD_OP  slice      slice      whole
//   3      FULL_SHARD     slice      slice      slice
//   3      HYBRID_SHARD   slice      slice      shard
//
// MiCS and hpZ are HYBRID_SHARD's row; a shard of one rank is whole. With quantized weights its parameters are slices,
// and shards are packed in each step.
// A slice is divided among the data-parallel group, a shard among one replica's ranks. Each rank updates a slice of its
// own in every row, so that a shard is the slices of a replica group: rank r of shards of S ranks holds the slices of
// all ranks with the number r mod S in their shard groups. Replicas exchange updated parameters once per step, and
// gradients that are added over all ranks have the same bits as in the other rows.
//
// A column says how what is sent travels (CodecKind): as it is, or by a codec that the job asks for, in the kinds of steps
// that have it (step_residency()). layout() gives each unit its own codecs by it; reduce() and gather()
// ask these when they emit transfers.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/optim/step_kind.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

struct Residency {
  Held optimizer = Held::whole;   // master weights and moments
  Held gradients = Held::whole;   // sums over ranks
  Held parameters = Held::whole;  // where they are not whole they are gathered where they are used
  DType grad_dtype = DType::f32;  // of the gradients as they are summed and held
  Lifetime gradients_live =
      Lifetime::persistent;  // for the whole run, or from their first use to a step's end
  // When ranks add gradients, along which axes, and in which dtype they send them. Ranks own slices along the same axes.
  ReduceMode reduce = ReduceMode::boundary;
  Axes adds = kStateAxes;
  DType wire_dtype = DType::f32;
  UnitCodecs codecs{};           // of units that no codec treats apart
  bool measures_codecs = false;  // in training: what quantizing loses, in the last micro-batch

  // Returns whether the gradients of a micro-batch have an f32 buffer of their own before they are added to the step's:
  // because ranks add them first, or because the step's gradients have 16 bits.
  bool has_micro_gradients() const {
    return reduce == ReduceMode::micro_batch || is_16bit(grad_dtype);
  }
};

// Returns the row of the job's stage, where what is sent travels as it is. A single rank owns everything, so nothing is sharded. Gradients
// that ranks add once per step (dstrain.reduce: boundary) are whole until then, at every stage. Those of a step with one
// micro-batch live for the step, unless the run keeps own weights in them (ModelState::use_average()).
Residency residency_of(const Job& job, const Place& place);
// Returns the same with the codecs that the job asks for in steps of a kind, and when and where ranks add gradients then.
Residency step_residency(const Job& job, const Place& place, StepKind kind = StepKind::regular);

// Returns the row of one unit: where its slices are those of one rank, this holds the whole unit.
Residency unit_residency(const Residency& residency, const Unit& unit, const Place& place);

// Returns whether ranks keep their own gradients in steps of this kind: they send something as signs, or nothing.
bool keeps_gradients(const Job& job, StepKind kind);
// Returns whether gradients travel as low-rank factors (PowerSGD) in steps of this kind.
bool sends_factors(const Job& job, const Place& place, StepKind kind);
// Returns whether each shard group updates weights of its own in steps of this kind (post-local SGD). reduce() and
// update() then add along the axis `shard`.
bool updates_in_groups(const Job& job, StepKind kind);

// Returns among how many ranks a class of state is divided, where a slice is one of as many as there are ranks along
// `slices`.
int divisor(Held held, const Place& place, Axes slices = kStateAxes);

// Returns the description of a unit's buffer that a rank holds as `held` says. `slices`: the axes along which ranks
// divide the unit into slices.
UnitBuffer unit_buffer(BufferId id, Held held, Axes slices = kStateAxes);

// Returns the axes along which ranks add the gradients of a unit, where they add those that all ranks with the same
// parameters have along `adds`.
inline Axes adds_of(const Unit& unit, Axes adds) {
  return adds == kStateAxes ? unit.axes : adds;
}

// Returns the slice of `unit` that the rank owns, at every stage. The ranks along `axes`, by default all that have its
// parameters, divide the unit into equal slices; the rank with number r among them owns slice r.
Range owned_slice(const Unit& unit, const Place& place, Axes axes);
inline Range owned_slice(const Unit& unit, const Place& place) {
  return owned_slice(unit, place, unit.axes);
}

// Returns how many elements may be under way beside computation at a time. A larger limit of the configuration does not
// count, because buffers of what is under way must not take the memory that sharding saves. A unit with more elements
// travels alone, and computation waits for it.
int64_t most_in_flight(const Program& program);

// Returns the elements of `unit` that this rank updates in `buffer`: all of them where it holds the whole unit, else the
// owned slice. The answer for partial state is the same as if all parameters had that state.
Range range_of(const UnitBuffer& buffer, const Unit& unit, const Place& place);
// Returns where in `buffer` the value of an element of range_of() lies. Throws InternalError if partial state does not have it.
int64_t position_of(const UnitBuffer& buffer, const Unit& unit, const Place& place,
                    int64_t element);

}  // namespace dstrain
