// The passes: each is a function over a program in a file of its own. A training plan is made by
//   model -> recognise -> split_layers -> set_update_forms -> backward -> fuse -> tie_stages -> keep_stage -> chunk_loss -> recompute
//   -> chunk_mlp -> issue_early -> split_backward -> offload_activations -> separate_frozen -> separate_replicated
//   -> layout -> reduce -> update -> send_in_groups -> bring_operands -> update_buffers -> gather -> halve_sums
//   -> join_norms -> pack -> begin_step -> place -> order -> verify;
// one of validation has neither a backward pass nor an update, and use_synchronised_weights behind gather. chunk_loss and
// chunk_mlp are those of chunks/; recognise is that of recognise/; split_layers, issue_early and halve_sums those of parallel/;
// send_in_groups is that of codecs/. make_plan.cpp calls them.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/residency.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {

// Appends the backward pass: the backward rules of the forward ops in reverse order.
void backward(Program& program);

// Merges a product with the gelu after it or with the addition to a residual (without dropout), and an input gradient
// with the slope of gelu after it, if the library has one kernel for both (GPUs only). Gelu's input is still written
// if another op reads it. Runs before recompute(), so that a repeated op is the same op: gelu alone, over the rounded
// product, would give other bits.
void fuse(Program& program, const KernelLibrary& library, int threads);

// Joins instructions that follow each other where the library has one kernel for both: layer_norm_input_grad and
// layer_norm_weight_grad, which read the same values, to layer_norm_grad; add_dropout and the layer_norm of its sum
// to add_layer_norm. A late pass, as others move the two apart (split_backward, gather) or compute one of them again
// (recompute). No number changes.
void join_norms(Program& program, const KernelLibrary& library, int threads);

// Activation checkpointing (job.recompute), after fuse() and keep_stage(): clones forward instructions in front of the
// backward instructions that read their results, so that the results need not be kept. Clones are printed
// under groups "re:GROUP" and write buffers "re:NAME". Only ops that `rule` calls repeatable are cloned; the results of
// others are kept. With GatherAgain::on rows that a tensor group gathers are gathered again, too. The numbers of a step do
// not change.
void recompute(Program& program, const Job& job, RuleOf rule = rule_of);

// Gives the last stage of a pipeline copies of the parameters that it shares with the first: the value comes from
// there at the beginning of a step. Its gradient is summed over the step's micro-batches by itself, and added to that
// of the first stage in the last micro-batch, before ranks add theirs. `place`: of any rank. Throws InternalError if other
// stages share one.
void tie_stages(Program& program, const std::vector<int64_t>& first_sublayers,
                const PipelineConfig& pipeline, const Place& place);

// Returns the program of one stage of a pipeline: the sublayers of its parts, and the messages to and from other
// stages. Part i has the sublayers from `first_sublayers[i]` up to `first_sublayers[i + 1]`; the last entry is the
// number of sublayers. A layer that several parts share has a unit in each of them, with the name of its first sublayer
// there: "blocks.3.mlp". A value that a further part reads passes through those between; what follows from inputs and constants
// alone each part computes itself. A single stage has the whole program. `program` must not have unit buffers yet.
Program keep_stage(const Program& program, const std::vector<int64_t>& first_sublayers, Place place,
                   const PipelineConfig& pipeline);

// Moves what is kept for the backward pass to the host's memory or to disk (job.offload.activations), after
// recompute(): it leaves when the layer that uses it last has been computed, and comes back a layer before the one that
// reads it next. What is read again at once stays, and so do statistics. The numbers of a step do not change.
void offload_activations(Program& program, const Job& job);

// Makes the instructions that compute weight gradients a phase of their own, after the others. The gradients `in_pieces`
// stay: what they are made of is overwritten piece by piece. Throws InternalError if another instruction would overwrite
// what one that is moved reads.
void split_backward(Program& program, const std::set<BufferId>& in_pieces = {});

// Moves the frozen parameters of each unit to a unit of their own, "U:frozen", behind all that are trained, and those of
// packed blocks to another one, "U:packed"; the first of a unit's parts keeps its name. Such a unit is held and
// gathered as the others are, and has neither gradients nor optimizer state.
void separate_frozen(Program& program);

// Gives the experts that the ranks of an expert group divide units of their own, "U:experts": their gradients are added over the
// ranks that have the same ones, which also divide their state. Runs after separate_frozen().
void separate_experts(Program& program);

// Gives the parameters that all ranks of a tensor group have alike units of their own, "U:replicated", behind those of
// the same kind that it divides: their gradients are added over the tensor group, too, which also divides their state.
// Runs after separate_frozen().
void separate_replicated(Program& program, const Place& place);

// Lays the parameters of each unit out as one flat range, padded so that rank r owns the r-th of equal
// slices. Fills Unit::spaces and Unit::codecs. Adds the buffers "params:U" in the run's dtype and "grads:U" in the
// residency's, whole or the owned slice; and "micro_grads:U", where the gradients of a micro-batch have a buffer of their
// own. Gradients of parameters become views of the buffer that the backward pass writes, and parameters views of
// "params:U" where that is whole; otherwise `gather` gives them a place.
void layout(Program& program, const Job& job, Place place, const Residency& residency);

// Adds the sums over ranks: after the last instruction that writes a unit's gradients, in the last
// micro-batch (boundary) or in each (micro_batch), in the way that the unit's codec says (Unit::codecs). If gradients are
// held in 16 bits, the f32 gradients of a micro-batch have a buffer of their own and are added from there; each sum is
// rounded once. Every contribution is rounded once to the wire dtype and the sum once more, even if nothing is sent, so
// that the numbers do not depend on what is sharded. If the optimizer is sharded, only the owner of a slice gets its
// sum. Sums go where the step's gradients are (Unit::spaces) as soon as ranks have added them. Gradients that travel as
// low-rank factors are added at the step's end (power_sgd()). In front of the first gradient
// of a unit there are zeros for what lies between its parameters, unless gradients live for the run.
void reduce(Program& program, const Job& job, const Place& place, const Residency& residency);

// Sets how the optimizer updates each parameter (Parameter::form).
void set_update_forms(Program& program, const OptimizerConfig& optimizer);

// Adds the end of the step: the norm over owned slices, finish_gradients, and what the optimizer's rule emits for each
// unit (OptimizerRule); and the optimizer's state: "master:U" (16-bit runs), "exp_avg:U", ..., of which a slot that
// ranks gather is the slice of a buffer "whole_exp_avg:U". Where ranks hold more of the parameters than the slices that
// they update, the updated slices are gathered: from all ranks, or from the replica group. In steps of a kind in which
// ranks keep their gradients the norm is of those, and they send signs. What codecs keep for the next step (Program::commits)
// replaces the old values behind finish_gradients.
void update(Program& program, const Job& job, const Place& place, const Residency& residency,
            StepKind kind);

// In validation: the parameters become the weights that ranks have synchronised, if the job has local steps.
void use_synchronised_weights(Program& program, const Job& job);

// Adds the updates of registered buffers to the end of the step: their sums are added over data-parallel ranks, also
// where groups of them update weights of their own, so that all ranks have the same values.
void update_buffers(Program& program, const Job& job, Place place);

// Brings the operands of updates into one space, after update(), where units have tensors elsewhere than on the device
// (Unit::spaces). An update works on the device or on the host: what each unit needs is copied beside the unit before, and
// what it has written goes back. The numbers of a step do not change. reduce() brings sums of gradients to where the step's
// are, and gather() parameters to where layers use them.
void bring_operands(Program& program, const Job& job);

// Gathers each unit of sharded parameters before it is used, ahead of time if the job's limits allow it, and
// frees it if its next use is too far away. Does nothing if parameters are whole. The unit's codec says how they travel
// (Unit::codecs).
void gather(Program& program, const Job& job, Place place, const Residency& residency);

// Takes a forward pass to the logits, whose samples are one token each and `rows` together, and makes the rows tokens of slots
// (runtime/ir/slots.h). Each slot holds the keys and values of up to `positions` tokens in buffers that live for the run.
// The input kSlotsInput says the slot of each row; the model's documents say its position. Throws InternalError if an
// operation does not work on each row by itself.
void use_slots(Program& program, int64_t rows, int64_t slots, int64_t positions);
inline constexpr std::string_view kSlotsInput = "slots";
// Makes the logits those of one row alone, which the input kRowInput names.
void take_last_row(Program& program);
inline constexpr std::string_view kRowInput = "row";

// Adds the start of the step: load_batch and, in training, the target count.
void begin_step(Program& program);

// Packs weights into the layout that the library's products prefer, if the library says that this pays: once
// per step, or after each gather.
void pack(Program& program, const KernelLibrary& library, int threads);

}  // namespace dstrain
