// Plan: a program, the order in which its instructions are issued, and an address for every buffer. The plans
// of a run (one for each kind of training steps, one for validation) share persistent memory, and one transient
// region that is as large as the largest plan needs.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"
#include "runtime/plan/cost/machine_rates.h"
#include "runtime/plan/implementations.h"
#include "runtime/plan/pipeline/level_stages.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/residency.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {

// One execution of an instruction, in the order of the step.
struct Issue {
  int32_t instruction;
  int32_t micro;
};

// The memory regions of a rank. Peers read `registered` memory directly. The first three are on the device.
enum class Region : uint8_t { persistent, registered, transient, host, disk };
inline constexpr int kRegions = 5;

// Returns the region of a buffer without a parent.
Region region_of(const Buffer& buffer);

// The place of a buffer in the memory of a rank: a region, and an offset in it.
struct Address {
  Region region = Region::transient;
  int64_t offset = 0;  // bytes from the region's start
  int64_t copies = 1;  // copy i is that of micro-batches i, i + copies, ...
  int64_t stride = 0;  // bytes from one copy to the next

  // Returns the offset of the copy of a micro-batch.
  int64_t offset_of(int64_t micro) const { return offset + micro % copies * stride; }
};

using ClassBytes = std::array<int64_t, kMemoryClasses>;

// The memory of a rank: the bytes reserved in each space, and the classes that use them when most is in use.
struct MemoryTable {
  std::array<int64_t, kRegions> region_bytes{};
  ClassBytes at_peak{};  // of the device: adds up to total()
  ClassBytes host_at_peak{}, disk_at_peak{};

  const ClassBytes& peak_of(Space space) const {
    return space == Space::device ? at_peak : space == Space::host ? host_at_peak : disk_at_peak;
  }
  ClassBytes& peak_of(Space space) {
    return space == Space::device ? at_peak : space == Space::host ? host_at_peak : disk_at_peak;
  }
  int64_t bytes_of(Region region) const { return region_bytes[static_cast<size_t>(region)]; }
  // Returns the bytes reserved in a space.
  int64_t total(Space space = Space::device) const {
    if (space == Space::host) return bytes_of(Region::host);
    if (space == Space::disk) return bytes_of(Region::disk);
    return region_bytes[0] + region_bytes[1] + region_bytes[2];
  }
};

// The step of one rank.
struct Plan {
  StepKind kind = StepKind::regular;  // the kind of training steps that the plan is for
  Program program;
  std::vector<StageTask> tasks;    // the phases of micro-batches in the order in which they run
  std::vector<Issue> order;        // all issues of the step in their order
  std::vector<Address> address;    // of each buffer, views included
  std::vector<Address> workspace;  // of each instruction
  std::vector<int64_t> workspace_bytes;  // of each instruction
  // What runs beside computation has a channel: a collective or a message that of its communicator, a copy between host
  // and device the copy channel, a transfer of a drive the I/O channel. Element i * channels + c says how many
  // operations of channel c, of all those of the step, must be complete before issue i starts.
  std::vector<int32_t> waits;
  int channels = 1;  // the number of all channels
  // The communicators' channels (mesh.h), which have the numbers from 0 on.
  std::vector<Channel> comm_channels;
  // The numbers of the other two, which follow; -1: the step has no such operations.
  int32_t copy_channel = -1, io_channel = -1;
  int64_t micro_batches = 1;  // of the step
  Place place;
  // The axes along which ranks add gradients, and divide units into slices: those of all ranks that have this rank's
  // parameters; or those of its shard group, in steps in which each shard group updates weights of its own.
  Axes adds = kStateAxes;
  int threads = 1;
  DType master_dtype = DType::f32;  // of the weights that the optimizer updates
  bool rank_order_sums = true;  // sums over ranks are in rank order, in f32, whatever the transport
  // The most elements of parameters that may be gathered at a time; a single unit may have more.
  int64_t max_live_elements = INT64_MAX;

  const Instruction& instruction_of(const Issue& issue) const {
    return program.instructions[static_cast<size_t>(issue.instruction)];
  }
  // Returns the channel of a collective or a message.
  const Channel& comm_channel(const Instruction& op) const {
    return comm_channels[static_cast<size_t>(op.channel)];
  }
  // Returns the number of the first channel that no communicator has.
  int32_t first_other_channel() const { return static_cast<int32_t>(comm_channels.size()); }
  // Returns the number of this rank's part of a micro-batch among the parts of equal size of a step's samples.
  int64_t part_of_samples(int64_t micro) const {
    return micro * place.ranks_in(kSampleAxes) + place.rank_in(kSampleAxes);
  }
};

// The plans that one rank runs.
struct RankPlan {
  // The plan of regular steps. It has all persistent buffers of the run, also those that other plans alone use.
  Plan train;
  std::vector<Plan> other;  // of the other kinds of steps; empty for most jobs
  Plan validate;            // of validation
  MemoryTable memory;

  // Returns the training plans; the first is `train`.
  std::vector<const Plan*> training() const;
  // Returns the plan of a kind of steps that the job has.
  const Plan& training(StepKind kind) const;
};

// What a plan depends on besides its job and its rank.
struct PlanInputs {
  std::shared_ptr<const KernelLibrary> library;  // asked for sizes only
  int threads = 1;                               // threads of a rank
  // The CPU's kernels, for what runs on the host; null: `library` has them.
  std::shared_ptr<const KernelLibrary> host_library{};
  MachineRates rates =
      rates_of(DeviceChoice::cpu);  // by which times are estimated; all ranks have the same
};

// Builds, places and verifies the plans of the rank with these coordinates. Pure.
RankPlan make_rank_plan(const Job& job, Place place, const PlanInputs& inputs);
// Returns the plans of every stage for ranks that have the same coordinates as rank `rank` of the world, but for the
// stage. Throws InternalError if the stages' messages do not fit together, or if another rank of a group that rank `rank`
// is in has other collectives. Pure.
std::vector<RankPlan> make_stage_plans(const Job& job, int rank, const PlanInputs& inputs);
// Returns these plans without `waits` and without proofs: to know their memory and to estimate their time, not to run
// them. Pure.
std::vector<RankPlan> draft_stage_plans(const Job& job, int rank, const PlanInputs& inputs);
// Returns a function that plans one stage of the job's pipeline for a division of the model, and returns the bytes of
// the stage's device. It is given the first sublayer of every part and, at the end, the number of sublayers. The bytes
// leave out workspaces and packed weights, which depend on processors and threads, so that all ranks come to the same
// numbers.
StageBytes stage_bytes(const Job& job, const PlanInputs& inputs);
// Returns the plan of a forward pass over one sample of `seq_len` tokens. Its logits live to the step's end; with
// `with_losses` losses follow them, as validations compute them. Everything is on the device, also where training
// offloads.
RankPlan make_forward_plan(const Job& job, int64_t seq_len, bool with_losses,
                           const PlanInputs& inputs);

// The slots of plans that generate text, and the rows of their passes.
struct SlotSizes {
  int64_t slots = 1, positions = 0;  // positions: tokens that a slot holds
  std::vector<int64_t> passes{};     // rows of the plans that read prompts
};
// Returns the plans by which tokens are generated (runtime/ir/slots.h): `validate` has a row for each slot and the logits of
// all of them; `other` has a plan for each of `passes`, whose logits are those of the row that its input kRowInput names.
// They share the weights and the slots.
RankPlan make_slot_plans(const Job& job, const SlotSizes& sizes, const PlanInputs& inputs);

// Returns how many collectives and messages a step starts, by channel of a communicator.
std::vector<int32_t> count_collectives(const Plan& plan);
// Returns how many operations a step starts, by channel: those, copies and transfers of drives.
std::vector<int32_t> count_posted(const Plan& plan);
// Returns the bytes of the whole tensor of a collective or message. Of rows of experts, those of one rank: as many travel where
// all choices are even.
int64_t payload_bytes(const Program& program, const Instruction& op);
// Returns the bytes that a rank sends in a step if every collective runs on a ring (docs/formats.md).
int64_t wire_bytes(const Plan& plan);

}  // namespace dstrain
