// Where model state is held in the data-parallel group: replicated or sharded, for each class of state.
// ZeRO's stages and FSDP's sharding strategies are rows of the table below. Passes and memory estimates ask
// a Residency, never for a stage. Only the configuration, messages about it, and `fit`, which proposes a
// higher stage, know stages.
//
//   stage  FSDP           optimizer   gradients   parameters
//   0      NO_SHARD       replicated  replicated  replicated
//   1      -              sharded     replicated  replicated
//   2      SHARD_GRAD_OP  sharded     sharded     replicated
//   3      FULL_SHARD     sharded     sharded     sharded
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

struct Residency {
  bool optimizer = false;         // sharded: master weights and moments of the owned slice only
  bool gradients = false;         // sharded: sums of the owned slice only
  bool parameters = false;        // sharded: gathered where they are used
  DType grad_dtype = DType::f32;  // of the gradients as they are summed and held
};

// Returns the row of the job's stage. A single rank owns everything, so nothing is sharded. Gradients that
// ranks add once per step (dstrain.reduce: boundary) are whole until then, at every stage.
Residency residency_of(const Job& job, Place place);

// Returns the slice of `unit` that the rank owns, at every stage: the rank-th of equal parts.
Range owned_slice(const Unit& unit, Place place);

// Returns how many elements may be in communication beside computation at a time, whatever larger limit the
// configuration sets: their buffers must not take the memory that sharding saves. A larger unit is awaited
// where it is sent.
int64_t most_in_flight(const Program& program);

// Returns the elements that are in both; a range of negative size if there are none.
Range common(Range a, Range b);

// Returns the elements of its unit that a parameter is.
Range elements_of(const Parameter& parameter);

// Returns which elements of `unit` the flat buffer `buffer` holds: all of them or the owned slice. For partial state:
// what it would hold if all parameters had it.
Range range_of(const Buffer& buffer, const Unit& unit, Place place);

// Returns where in `buffer` an element of `unit` lies. Throws InternalError if it is not there.
int64_t position_of(const Buffer& buffer, const Unit& unit, Place place, int64_t element);

}  // namespace dstrain
