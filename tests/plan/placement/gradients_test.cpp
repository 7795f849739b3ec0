// Gradients of a step with one micro-batch: memory of the step, which activations use before.
#include <catch2/catch.hpp>
#include <map>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// Units of this model have padding between parameters and at their ends.
Job one_micro_job(int stage, int ranks, DType dtype = DType::f32) {
  Job job = sharded_job(stage, ranks);
  job.model.set("n_embd", int64_t{36});
  job.model.set("block_size", int64_t{64});
  job.dtype = job.wire_dtype = dtype;
  job.batch = {2 * ranks, 2, 1};
  return job;
}

Job with_micros(Job job, int64_t micros) {
  job.batch = {2 * micros * job.ranks, 2, micros};
  return job;
}

struct Bytes {
  Region region{};
  int64_t begin = 0, end = 0;
  bool overlaps(const Bytes& other) const {
    return region == other.region && begin < other.end && other.begin < end;
  }
};

Bytes bytes_at(const Plan& plan, BufferId id) {
  const Address& a = plan.address[static_cast<size_t>(id)];
  return {a.region, a.offset, a.offset + plan.program.at(id).bytes()};
}

const Buffer& gradients_of(const Plan& plan, const Unit& unit) {
  return plan.program.at(unit.buffers.gradients.id);
}

}  // namespace

TEST_CASE("gradients of one micro-batch live for a step, those of several for the run") {
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {1, 2})
      for (const int64_t micros : {1, 2}) {
        CAPTURE(stage, ranks, micros);
        const Plan plan = plan_of(with_micros(one_micro_job(stage, ranks), micros), 0).train;
        for (const Unit& unit : plan.program.trained_units())
          CHECK(gradients_of(plan, unit).lifetime ==
                (micros == 1 ? Lifetime::step : Lifetime::persistent));
      }
}

TEST_CASE("a rank that sends no gradients where they lie computes activations in their memory") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [stage, ranks] : {std::pair{0, 1}, {2, 2}, {3, 4}}) {
      CAPTURE(name_of(dtype), stage, ranks);
      const Job job = one_micro_job(stage, ranks, dtype);
      const RankPlan rank = plan_of(job, 0), several = plan_of(with_micros(job, 2), 0);
      const Plan& plan = rank.train;
      size_t overlaps = 0;
      int64_t gradients = 0;
      for (const Unit& unit : plan.program.trained_units()) {
        const Bytes mine = bytes_at(plan, unit.buffers.gradients.id);
        CHECK(mine.region == Region::transient);
        gradients += mine.end - mine.begin;
        for (size_t b = 0; b < plan.program.buffers.size(); ++b)
          if (const Buffer& other = plan.program.buffers[b];
              other.memory == MemoryClass::activations && other.parent == kNone)
            overlaps += mine.overlaps(bytes_at(plan, static_cast<BufferId>(b)));
      }
      CHECK(overlaps > 0);
      // Most activations are larger than the gradients that are there with them.
      CHECK(rank.memory.total() < several.memory.total() - gradients / 2);
    }
}

TEST_CASE("gradients keep their memory until the step ends: the host may look at them") {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::lamb, OptimizerKind::muon}) {
    Job job = one_micro_job(0, 1);
    job.optimizer.kind = kind;
    const Plan plan = plan_of(job, 0).train;
    for (const Unit& unit : plan.program.trained_units()) {
      const Bytes mine = bytes_at(plan, unit.buffers.gradients.id);
      bool written = false;
      for (const Issue& issue : plan.order)
        for (const BufferId id :
             plan.program.instructions[static_cast<size_t>(issue.instruction)].writes) {
          if (id == kNone) continue;
          const bool own = plan.program.root(id) == unit.buffers.gradients.id;
          written = written || own;
          CHECK_FALSE((written && !own && mine.overlaps(bytes_at(plan, id))));
        }
      CHECK(written);
    }
  }
}

TEST_CASE("what lies between the gradients of one micro-batch is written before norms read it") {
  for (const int stage : {0, 1, 2, 3})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      CAPTURE(stage, reduce == ReduceMode::boundary);
      Job job = one_micro_job(stage, 2);
      job.reduce = reduce;
      const Plan plan = plan_of(job, 0).train;
      std::map<BufferId, int64_t> zeros;  // elements, by root
      for (const Instruction& op : plan.program.instructions)
        if (op.op == OpKind::zero)
          zeros[plan.program.root(op.writes[0])] += plan.program.at(op.writes[0]).shape.elements();
      for (const Unit& unit : plan.program.trained_units()) {
        int64_t padding = unit.elements;
        for (const int index : unit.parameters)
          padding -= plan.program.parameters[static_cast<size_t>(index)].shape.elements();
        const BufferId written = plan.program.root(
            plan.program.parameters[static_cast<size_t>(unit.parameters[0])].gradient);
        CHECK((written == unit.buffers.gradients.id) == (reduce == ReduceMode::boundary));
        CHECK(padding > 0);
        CHECK(zeros[written] == padding);
      }
    }
}

TEST_CASE("PowerSGD finds zeros between gradients too") {
  Job job = one_micro_job(0, 2);
  job.hook = {.kind = HookKind::power_sgd};
  const Plan plan = plan_of(job, 0).train;
  size_t zeros = 0;
  for (const Instruction& op : plan.program.instructions)
    zeros += op.op == OpKind::zero &&
             plan.program.at(plan.program.root(op.writes[0])).name.starts_with("grads:");
  CHECK(zeros >= plan.program.trained_units().size());
}

TEST_CASE("groups of ranks with weights of their own keep gradients: they are where these wait") {
  Job job = one_micro_job(0, 4);
  job.hook = {.kind = HookKind::post_local_sgd, .start = 1, .period = 2};
  job.shards = {2, false, false};
  const RankPlan rank = plan_of(job, 0);
  for (const Plan* plan : rank.training())
    for (const Unit& unit : plan->program.trained_units())
      CHECK(gradients_of(*plan, unit).lifetime == Lifetime::persistent);
}

TEST_CASE("gradients of one micro-batch on disk have a place of their own") {
  Job job = one_micro_job(3, 2);
  job.offload.optimizer = OffloadTo::nvme;
  const Plan plan = plan_of(job, 0).train;
  for (const Unit& unit : plan.program.trained_units()) {
    CHECK(gradients_of(plan, unit).space == Space::disk);
    CHECK(gradients_of(plan, unit).lifetime == Lifetime::persistent);
  }
}
