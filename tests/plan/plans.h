// What tests of the plan ask of one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/plan.h"
#include "tests/support/fake_library.h"
#include "tests/support/models.h"

namespace dstrain {

// Two blocks, three micro-batches, two ranks, nothing sharded.
inline Job small_job() {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 12, .n_head = 3, .block_size = 7, .vocab_size = 11};
  job.batch = {.train_batch = 12, .micro_batch = 2, .accumulation = 3};
  job.ranks = 2;
  return job;
}

// Four blocks and two micro-batches at a ZeRO stage, where nothing stays gathered between two uses.
inline Job sharded_job(int stage, int ranks = 4) {
  Job job;
  job.model = GptLite{.n_layer = 4, .n_embd = 32, .n_head = 2, .block_size = 8, .vocab_size = 17};
  job.ranks = ranks;
  job.batch = {2 * 2 * ranks, 2, 2};
  job.zero_stage = stage;
  job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
  job.overlap_comm = true;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

inline RankPlan plan_of(const Job& job, int rank = 1) {
  return make_rank_plan(job, place_of(job, rank), fake_inputs());
}

// Returns the bytes of the persistent buffers of a class.
inline int64_t persistent_bytes(const Program& program, MemoryClass memory) {
  int64_t bytes = 0;
  for (const Buffer& b : program.buffers)
    if (b.lifetime == Lifetime::persistent && b.parent == kNone && b.memory == memory)
      bytes += b.bytes();
  return bytes;
}

// Returns the bytes that a rank sends on the channel of a group in a step, by a ring.
inline int64_t sent_on(const Plan& plan, Axes group) {
  const int32_t channel = channel_of(plan.place, group);
  int64_t bytes = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (!is_collective(op.op) || op.channel != channel) continue;
    const int64_t n = plan.place.ranks_in(group);
    bytes += std::max(plan.program.at(op.reads[0]).bytes(), plan.program.at(op.writes[0]).bytes()) /
             n * (n - 1);
  }
  return bytes;
}

// Returns the place of one of `ranks` data-parallel ranks, in shard groups of `shard_ranks` (0: all).
inline Place data_place(int rank, int ranks, int shard_ranks = 0) {
  const int shard = shard_ranks == 0 ? ranks : shard_ranks;
  return Place({1, ranks / shard, shard, 1, 1, 1}, rank);
}

inline Plan train_plan(const Job& job, const Place& place = {}) {
  return make_rank_plan(job, place, fake_inputs()).train;
}

inline std::string group_of(const Plan& plan, const Instruction& op) {
  return plan.program.group_name(op);
}

// The instruction of the i-th issue of a step.
inline const Instruction& op_at(const Plan& plan, size_t i) {
  return plan.program.instructions[static_cast<size_t>(plan.order[i].instruction)];
}

// The issues of a step's ops of one kind.
inline std::vector<size_t> issues_of(const Plan& plan, OpKind kind) {
  std::vector<size_t> list;
  for (size_t i = 0; i < plan.order.size(); ++i)
    if (op_at(plan, i).op == kind) list.push_back(i);
  return list;
}

inline size_t count_ops(const Plan& plan, OpKind kind) {
  size_t n = 0;
  for (const Instruction& op : plan.program.instructions) n += op.op == kind;
  return n;
}

inline int64_t bytes_of(const RankPlan& rank, MemoryClass memory) {
  return rank.memory.at_peak[static_cast<size_t>(memory)];
}

inline int64_t host_bytes(const RankPlan& rank, MemoryClass memory) {
  return rank.memory.host_at_peak[static_cast<size_t>(memory)];
}

// Elements of all units, padding included.
inline int64_t padded(const RankPlan& rank) {
  int64_t sum = 0;
  for (const Unit& u : rank.train.program.units) sum += u.elements;
  return sum;
}

// The names of a group's ops, in the order of the list.
inline std::vector<std::string> op_names(const Plan& plan, const std::string& group) {
  std::vector<std::string> names;
  for (const Instruction& op : plan.program.instructions)
    if (group_of(plan, op) == group) names.emplace_back(name_of(op.op));
  return names;
}

// A step's work on the comm queue, in order, with buffers and bytes: the same on every rank. A view has
// another name on every rank, so the buffer that it lies in is named.
inline std::vector<std::string> comm_work(const Plan& plan) {
  std::vector<std::string> list;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (rule_of(op.op).queue != Queue::comm) continue;
    const BufferId id = op.reads.empty() ? kNone : plan.program.root(op.reads[0]);
    list.push_back(fmt::format("{} {} {}", name_of(op.op),
                               id == kNone ? "" : plan.program.at(id).name,
                               id == kNone ? 0 : plan.program.at(op.reads[0]).bytes()));
  }
  return list;
}

}  // namespace dstrain
