#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/plan/plans.h"
#include "tests/plan/stage_plans.h"

using namespace dstrain;

namespace {

Job keeping(OffloadTo to, RecomputeMode mode = RecomputeMode::interval, int64_t layers = 12) {
  Job job = sharded_job(3);
  job.model.set("n_layer", layers);
  job.recompute = {mode, mode == RecomputeMode::interval ? 1 : 0};
  job.offload.activations = to;
  return job;
}

int64_t bytes_in(const RankPlan& rank, Space space, MemoryClass memory) {
  return rank.memory.peak_of(space)[static_cast<size_t>(memory)];
}

}  // namespace

TEST_CASE("inputs of layers wait for the backward pass where the job says") {
  const int64_t resident = bytes_of(plan_of(keeping(OffloadTo::none)), MemoryClass::activations);
  for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
    const RankPlan rank = plan_of(keeping(to));
    const Space there = to == OffloadTo::cpu ? Space::host : Space::disk;
    const Program& program = rank.train.program;
    size_t kept = 0;
    int64_t bytes = 0;
    for (const Buffer& b : program.buffers) {
      if (!b.name.starts_with("kept:")) continue;
      CHECK(b.space == there);
      ++kept;
      bytes += b.bytes();
    }
    CHECK(kept == 11);  // of twelve blocks: the backward pass of the last one comes at once
    CHECK(bytes_in(rank, there, MemoryClass::activations) >= bytes);
    CHECK(bytes_of(rank, MemoryClass::activations) < resident);
    CHECK(rank.memory.total(Space::disk) ==
          (to == OffloadTo::nvme ? bytes_in(rank, Space::disk, MemoryClass::activations) : 0));
  }
}

TEST_CASE("activations of the device do not grow with the number of layers") {
  for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
    std::map<int64_t, int64_t> device, host;
    for (const int64_t layers : {8, 32}) {
      const RankPlan rank = plan_of(keeping(to, RecomputeMode::interval, layers));
      device[layers] = bytes_of(rank, MemoryClass::activations);
      host[layers] = rank.memory.total(Space::host);
    }
    CHECK(device[8] == device[32]);
    CHECK((host[8] == host[32]) == (to == OffloadTo::nvme));
  }
}

TEST_CASE("an activation comes back a layer before it is read, in order behind its way out") {
  for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::interval})
    for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
      const Plan plan = plan_of(keeping(to, mode)).train;
      const Program& program = plan.program;
      std::map<std::string, size_t> position;  // of the transfer that writes a buffer
      std::set<BufferId> moved;
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& op = program.instructions[i];
        for (const BufferId id : op.writes)
          if (id != kNone) position[program.at(id).name] = i;
        for (const BufferId id : op.reads) {
          if (id == kNone || !program.at(id).name.starts_with("back:")) continue;
          const std::string name = program.at(id).name.substr(5);
          if (!moved.insert(id).second) continue;
          const size_t back = position.at("back:" + name), kept = position.at("kept:" + name);
          CHECK(kept < back);
          CHECK(op.phase != Phase::forward);
          // Another layer's instructions lie between its return and its use.
          size_t others = 0;
          for (size_t k = back; k < i; ++k) {
            const Instruction& between = program.instructions[k];
            others += has_kernel(between.op) && between.group != op.group;
          }
          CHECK(others >= 5);
        }
      }
      CHECK(moved.size() >= 11);
    }
}

TEST_CASE("statistics stay, and what is read again at once") {
  const Plan plan = plan_of(keeping(OffloadTo::cpu, RecomputeMode::none)).train;
  for (const Buffer& b : plan.program.buffers) {
    if (!b.name.starts_with("kept:")) continue;
    CHECK(b.shape.elements() > 16);
    CHECK(b.name.find("blocks.11") == std::string::npos);
  }
}

TEST_CASE("stages of a pipeline move the activations of every micro-batch in flight") {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved, PipelineSchedule::zb_h1,
        PipelineSchedule::zb_v})
    for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme}) {
      Job job = keeping(to);
      job.zero_stage = 1;
      job.reduce = ReduceMode::boundary;
      job.batch = {2 * 4 * 2, 2, 4};
      job.pipeline.stages = 2;
      job.pipeline.schedule = schedule;
      const bool chunks =
          schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v;
      job.pipeline.virtual_stages = chunks ? 2 : 1;
      const std::vector<RankPlan> stages = make_stage_plans(job, 0, fake_inputs());
      job.offload = {};
      const std::vector<RankPlan> resident = make_stage_plans(job, 0, fake_inputs());
      for (const RankPlan& stage : stages)
        CHECK(stage.memory.total(to == OffloadTo::cpu ? Space::host : Space::disk) > 0);
      // The first stage has most micro-batches in flight. Where weight gradients have a phase of their own, what they
      // read is back for longer.
      const bool split = splits_backward(schedule);
      if (!split)
        CHECK(bytes_of(stages[0], MemoryClass::activations) <
              bytes_of(resident[0], MemoryClass::activations));
    }
}
