// Where model state lives over the data-parallel group: one row of a table. ZeRO's stages and FSDP's
// sharding strategies are rows of it, and nothing else in the program asks for a stage.
//
//   stage  FSDP           optimizer   gradients   parameters
//   0      NO_SHARD       replicated  replicated  replicated
//   1      -              sharded     replicated  replicated
//   2      SHARD_GRAD_OP  sharded     sharded     replicated
//   3      FULL_SHARD     sharded     sharded     sharded
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Which rank of how many a program is made for.
struct Place {
  int rank = 0;
  int ranks = 1;
};

struct Residency {
  bool optimizer = false;         // sharded: master weights and moments of the owned slices only
  bool gradients = false;         // sharded: sums of the owned slices only
  bool parameters = false;        // sharded: gathered where they are used
  DType grad_dtype = DType::f32;  // what gradients are summed and held in
};

// The row of the job's stage. One rank owns everything, so nothing is sharded over it; gradients that
// ranks add once per step (reduce: boundary) are whole until then, whatever the stage.
Residency residency_of(const Job& job, Place place);

// Elements [begin, end) of a unit.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// The slice of `unit` that the rank owns, in every stage: the rank-th of equal parts.
Range owned_slice(const Unit& unit, Place place);

// Of the model's elements, how many may travel beside computation at a time, whatever larger limit the
// configuration sets: what is on its way has buffers, and those must not eat what sharding saves. A unit
// that is larger is awaited where it is sent.
int64_t most_on_the_way(const Program& program);

// Which elements of `unit` the flat unit buffer `buffer` holds: all of them or the owned slice.
Range range_of(const Buffer& buffer, const Unit& unit, Place place);

}  // namespace dstrain
