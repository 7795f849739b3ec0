// What state takes without a plan, against the plan's own bytes.
#include "runtime/plan/cost/state_bytes.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/settings/fit.h"
#include "tests/plan/plans.h"
#include "tests/support/decoders.h"

using namespace dstrain;

namespace {

// A model whose activations take little beside its state. Rows of 64 values leave nearly no padding.
Job state_job(int64_t layers = 20) {
  Job job;
  job.model =
      GptLite{.n_layer = layers, .n_embd = 64, .n_head = 1, .block_size = 4, .vocab_size = 64};
  job.batch = {4, 1, 1};
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

void set_stage(Job& job, int stage) {
  job.zero_stage = stage;
  job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
}

void set_dtypes(Job& job, DType values, DType gradients, DType masters) {
  job.dtype = job.wire_dtype = values;
  job.grad_dtype = gradients;
  job.master_dtype = masters;
}

double planned(const Job& job) {
  return static_cast<double>(planned_bytes(job, fake_inputs()));
}

// Returns the bytes of a class of persistent buffers, or of all, in a space.
double persistent(const Program& program, Space space) {
  int64_t bytes = 0;
  for (const Buffer& b : program.buffers)
    if (b.lifetime == Lifetime::persistent && b.parent == kNone && b.space == space &&
        (b.memory == MemoryClass::parameters || b.memory == MemoryClass::gradients ||
         b.memory == MemoryClass::optimizer))
      bytes += b.bytes();
  return static_cast<double>(bytes);
}

// Returns the sum of state_bytes() over the parameters of a plan's rank.
SpaceBytes all_state(const Job& job, const Program& program) {
  SpaceBytes sum;
  for (const Parameter& p : program.parameters) {
    const SpaceBytes each = state_bytes(job, p);
    const auto elements = static_cast<double>(p.shape.elements());
    sum.device += elements * each.device;
    sum.host += elements * each.host;
    sum.disk += elements * each.disk;
  }
  return sum;
}

}  // namespace

TEST_CASE("state bytes: the least is no more than the plan, for every optimizer, stage and dtype") {
  struct Types {
    DType values, gradients, masters;
  };
  for (int kind = 0; kind < static_cast<int>(kOptimizerKinds); ++kind)
    for (const Types types : {Types{DType::f32, DType::f32, DType::f32},
                              {DType::bf16, DType::f32, DType::f32},
                              {DType::bf16, DType::bf16, DType::f32},
                              {DType::bf16, DType::bf16, DType::bf16}})
      for (const double momentum : {0.0, 0.9})
        for (int stage = 0; stage <= 3; ++stage)
          for (const int64_t micro_batches : {1, 2}) {
            Job job = state_job(6);
            job.ranks = 4;
            job.batch = {4 * micro_batches, 1, micro_batches};
            job.optimizer.kind = static_cast<OptimizerKind>(kind);
            job.optimizer.momentum = momentum;
            if (stage > highest_stage(job)) continue;
            if (types.masters == DType::bf16 && freezes(job.optimizer)) continue;
            set_dtypes(job, types.values, types.gradients, types.masters);
            set_stage(job, stage);
            CAPTURE(kind, name_of(types.values), name_of(types.gradients), name_of(types.masters),
                    momentum, stage, micro_batches);
            CHECK(least_state_bytes(job).memory() <= planned(job));
          }
}

TEST_CASE("state bytes: the least is most of the plan where state is most of it") {
  Job job = state_job();
  for (const bool adam : {true, false}) {
    if (!adam) job.optimizer = {.kind = OptimizerKind::sgd, .momentum = 0};
    const double least = least_state_bytes(job).all();
    CHECK(least > 0.8 * planned(job));
    CHECK(least_state_bytes(job).memory() == least);
  }
  // Pure SGD in 16 bits holds a value and a gradient of two bytes each.
  set_dtypes(job, DType::bf16, DType::bf16, DType::bf16);
  CHECK(least_state_bytes(job).all() == 4 * job.model.measures().parameters);
  job.ranks = 4;
  const double whole = least_state_bytes(job).all();
  set_stage(job, 3);
  CHECK(least_state_bytes(job).all() == whole / 4);
}

TEST_CASE("state bytes: what is on disk is no memory that a run needs at least") {
  Job job = state_job();
  set_stage(job, 3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t micro_batches : {1, 2})
      for (const double ratio : {1.0, 0.4})
        for (const OffloadTo state : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme})
          for (const OffloadTo parameters : {OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme}) {
            job.dtype = job.wire_dtype = dtype;
            job.batch = {micro_batches, 1, micro_batches};
            job.offload.optimizer = state;
            job.offload.parameters = parameters;
            job.offload.ratio = ratio;
            CAPTURE(name_of(dtype), micro_batches, ratio, static_cast<int>(state),
                    static_cast<int>(parameters));
            const PlannedMemory memory = planned_memory(job, fake_inputs());
            const SpaceBytes least = least_state_bytes(job);
            CHECK(least.memory() <= static_cast<double>(memory.device + memory.host));
            CHECK(least.all() <= static_cast<double>(memory.device + memory.host + memory.disk));
          }
}

TEST_CASE("state bytes: those of the parameters are the plan's persistent buffers") {
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const OffloadTo to : {OffloadTo::none, OffloadTo::cpu}) {
        Job job = state_job();
        job.ranks = 2;
        job.batch = {4, 1, 2};  // so that gradients are added up in persistent buffers
        set_stage(job, stage);
        set_dtypes(job, dtype, DType::f32, DType::f32);
        job.offload.optimizer = to;
        if (stage == 3) job.offload.parameters = to;
        const Plan plan = plan_of(job).train;
        const SpaceBytes state = all_state(job, plan.program);
        CAPTURE(stage, name_of(dtype), static_cast<int>(to));
        CHECK(persistent(plan.program, Space::device) == Approx(state.device).epsilon(0.03));
        CHECK(persistent(plan.program, Space::host) == Approx(state.host).epsilon(0.03));
      }
}

TEST_CASE("state bytes: where ranks divide experts the least is below what is planned") {
  Job job;
  job.model =
      decoder("mixtral", {{"num_local_experts", int64_t{64}}, {"num_key_value_heads", int64_t{2}}});
  job.ranks = 4;
  job.batch = {4, 1, 1};
  for (const int stage : {0, 1, 2, 3})
    for (const int expert_ranks : {1, 2, 4}) {
      CAPTURE(stage, expert_ranks);
      set_stage(job, stage);
      job.expert_ranks = expert_ranks;
      CHECK(least_state_bytes(job).memory() < planned(job));
      // A parameter's bytes are those of the ranks that have it.
      const Program program = plan_of(job, 0).train.program;
      double bytes = 0, held = 0;
      for (const Parameter& p : program.parameters)
        bytes +=
            state_bytes(job, p).device * static_cast<double>(program.at(p.value).shape.elements());
      for (const MemoryClass memory : {MemoryClass::parameters, MemoryClass::optimizer})
        held += static_cast<double>(persistent_bytes(program, memory));
      CHECK(bytes > held);  // with gradients
      CHECK(bytes < 2.2 * held);
    }
}
