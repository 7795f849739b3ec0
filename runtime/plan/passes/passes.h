// The passes: each is a function over a program, in one file. A training plan is
//   model -> backward -> recompute -> layout -> reduce -> update -> pack -> place -> verify.
#pragma once

#include "kernels/kernel.h"
#include "runtime/config/job.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Which rank of how many a program is made for.
struct Place {
  int rank = 0;
  int ranks = 1;
};

// Appends the backward pass, derived from the rules of the forward ops in reverse order.
void backward(Program& program);

// Activation checkpointing, right after backward(): clones forward instructions in front of the
// backward ones that read their results, so that these need not be kept (job.recompute). Clones
// print under groups "re:GROUP" and write buffers "re:NAME"; the numbers of a step do not change.
void recompute(Program& program, const Job& job);

// Lays each unit's parameters out as one flat range, padded so that rank r owns the r-th of `ranks`
// equal slices, and makes every parameter and gradient buffer a view of its unit's: "params:U" in
// the run's dtype, "grads:U" in f32.
void layout(Program& program, int ranks);

// Where ranks add: after the last instruction that writes a unit's gradients, in the last
// micro-batch (boundary) or in each (micro_batch). Every contribution is rounded once to the wire
// dtype and the sum once more, also where nothing is sent, so that the numbers do not depend on who
// holds what.
void reduce(Program& program, const Job& job, Place place);

// The end of the step: norm over owned slices, FinishGradients, one optimizer instruction per run
// of equally decayed parameters; and its state: "master:U" (16-bit runs), "exp_avg:U", ...
void update(Program& program, const Job& job, Place place);

// The start of the step: load_batch and, where there are gradients to divide, the target count.
void begin_step(Program& program);

// Packs weights once per step into the layout that the library's products prefer, where that pays.
void pack(Program& program, const KernelLibrary& library, int threads);

}  // namespace dstrain
