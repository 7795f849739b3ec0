// The passes: each is a function over a program, in one file. A training plan is
//   model -> backward -> fuse -> recompute -> layout -> reduce -> update -> gather -> pack -> place -> verify.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"
#include "runtime/plan/residency.h"

namespace dstrain {

// Appends the backward pass, derived from the rules of the forward ops in reverse order.
void backward(Program& program);

// Products take the gelu that follows them, and the slope of gelu that their input gradient is multiplied
// with, where the library has one kernel for both; nothing on a processor. What the product made for gelu
// is still written where somebody else reads it. Before recompute(), so that what is computed again is the
// same op: gelu alone, over what the product rounded, would give other bits.
void fuse(Program& program, const KernelLibrary& library, int threads);

// Activation checkpointing, right after fuse(): clones forward instructions in front of the
// backward ones that read their results, so that these need not be kept (job.recompute). Clones
// print under groups "re:GROUP" and write buffers "re:NAME"; the numbers of a step do not change.
void recompute(Program& program, const Job& job);

// Lays each unit's parameters out as one flat range, padded so that rank r owns the r-th of equal
// slices: "params:U" in the run's dtype, "grads:U" in the residency's, whole or the owned slice as
// that says. A parameter or f32 gradient becomes a view of its unit's where those are whole; else
// `gather` and `reduce` give it a place.
void layout(Program& program, Place place, const Residency& residency);

// Where ranks add: after the last instruction that writes a unit's gradients, in the last
// micro-batch (boundary) or in each (micro_batch). Where gradients are held in 16 bits, a
// micro-batch's f32 ones have a buffer of their own and are added from there, each sum rounded once.
// Every contribution is rounded once to the wire dtype and the sum once more, also where nothing is
// sent, so that the numbers do not depend on who holds what. The owner alone gets the sum where the
// optimizer is sharded.
void reduce(Program& program, const Job& job, Place place, const Residency& residency);

// The end of the step: norm over owned slices, FinishGradients, one optimizer instruction per run
// of equally decayed parameters; and its state: "master:U" (16-bit runs), "exp_avg:U", ... Where the
// optimizer alone is sharded, the updated slices are gathered.
void update(Program& program, const Job& job, Place place, const Residency& residency);

// Sharded parameters: gathers each unit before it is used, ahead of time where the limits of the job
// allow it, and lets go of it where its next use is too far away. Nothing to do where parameters are
// replicated.
void gather(Program& program, const Job& job, const Residency& residency);

// The start of the step: load_batch and, where there are gradients to divide, the target count.
void begin_step(Program& program);

// Packs weights into the layout that the library's products prefer, where that pays: once per step,
// or after each gather.
void pack(Program& program, const KernelLibrary& library, int threads);

}  // namespace dstrain
