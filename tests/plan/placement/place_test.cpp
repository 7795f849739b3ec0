#include "runtime/plan/placement/place.h"

#include <catch2/catch.hpp>

#include "tests/plan/plans.h"

using namespace dstrain;

TEST_CASE("memory classes add up to what is reserved, for every shape of job") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const ReduceMode mode : {ReduceMode::boundary, ReduceMode::micro_batch})
      for (const int ranks : {1, 2, 3, 4})
        for (const int64_t eval : {0, 5}) {
          Job job = small_job();
          job.dtype = job.wire_dtype = dtype;
          job.reduce = mode;
          job.ranks = ranks;
          job.eval_interval = eval;
          std::vector<RankPlan> all;
          for (int r = 0; r < ranks; ++r)
            all.push_back(make_rank_plan(job, data_place(r, ranks), fake_inputs(300, true)));
          for (const RankPlan& rank : all) {
            int64_t sum = 0;
            for (int64_t bytes : rank.memory.at_peak) sum += bytes;
            CHECK(sum == rank.memory.total());
            CHECK(comm_work(rank.train) == comm_work(all[0].train));
          }
        }
}

TEST_CASE("model states shrink by the paper's formula") {
  for (const auto& [dtype, sums] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
        std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f16}})
    for (const int stage : {0, 1, 2, 3}) {
      Job job = sharded_job(stage);
      job.dtype = job.wire_dtype = dtype;
      job.grad_dtype = sums;
      const RankPlan rank = plan_of(job);
      const int64_t all = padded(rank), slice = all / job.ranks;
      // Every buffer begins a cache line.
      const auto holds = [&](MemoryClass memory, int64_t elements, int64_t element_bytes) {
        const int64_t over = bytes_of(rank, memory) - elements * element_bytes;
        CHECK(over >= 0);
        CHECK(over < 64 * 3 * static_cast<int64_t>(rank.train.program.units.size()));
      };
      holds(MemoryClass::parameters, stage == 3 ? slice : all, size_of(dtype));
      holds(MemoryClass::gradients, stage >= 2 ? slice : all, size_of(sums));
      holds(MemoryClass::optimizer, stage >= 1 ? slice : all, dtype == DType::f32 ? 8 : 12);
    }
}

TEST_CASE("persistent buffers have the same address in every plan of a run") {
  Job job = small_job();
  job.eval_interval = 5;
  const RankPlan rank = make_rank_plan(job, data_place(0, 2), fake_inputs());
  int shared = 0;
  for (const Plan* plan : {&rank.train, &rank.validate})
    for (size_t i = 0; i < plan->program.buffers.size(); ++i) {
      const Buffer& b = plan->program.buffers[i];
      const Address& a = plan->address[i];
      if (!b.shared && b.parent == kNone)
        CHECK((b.lifetime == Lifetime::persistent) == (a.region == Region::persistent));
      if (plan == &rank.train || b.lifetime != Lifetime::persistent || b.parent != kNone) continue;
      const BufferId same = rank.train.program.find(b.name);
      REQUIRE(same != kNone);
      const Address& there = rank.train.address[static_cast<size_t>(same)];
      CHECK(a.region == there.region);
      CHECK(a.offset == there.offset);
      ++shared;
    }
  CHECK(shared == static_cast<int>(rank.train.program.units.size()));
}

TEST_CASE("buffers that are not live at the same time share memory") {
  const Plan plan = train_plan(small_job());
  const RankPlan rank = make_rank_plan(small_job(), data_place(0, 1), fake_inputs(300));
  int64_t sum = 0;
  for (const Buffer& b : plan.program.buffers)
    if (b.parent == kNone && b.lifetime != Lifetime::persistent) sum += b.bytes();
  CHECK(rank.memory.region_bytes[static_cast<size_t>(Region::transient)] < sum);
  for (size_t i = 0; i < rank.train.program.instructions.size(); ++i) {
    const bool linear = rank.train.program.instructions[i].op == OpKind::linear;
    CHECK(rank.train.workspace_bytes[i] == (linear ? 300 : 0));
    CHECK(rank.train.workspace[i].offset % 64 == 0);
  }
}

TEST_CASE(
    "the deepest model that a configuration can have is placed and proved, and takes what each "
    "layer adds") {
  const auto bytes_of_layers = [](int64_t layers) {
    Job job = sharded_job(2, 2);
    job.model.set("n_layer", layers);
    job.model.set("activation", "gelu");
    return make_rank_plan(job, place_of(job, 0), fake_inputs(300, false, true)).memory.total();
  };
  const int64_t few = bytes_of_layers(128), more = bytes_of_layers(1088);
  CHECK(bytes_of_layers(2048) == more + (more - few));
}
