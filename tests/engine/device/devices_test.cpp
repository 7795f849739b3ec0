// Tests of everything around the kernels of a device: streams, events, staging buffers, step state, collectives
// through the host, graphs. The kernels are those of the CPU, run on a stream, so the device must give the
// CPU's bits. mpirun starts this program.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/emulated_transport.h"
#include "tests/support/models.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"

using namespace dstrain;

namespace {

Job small_job(int ranks, DType dtype, int64_t accumulation) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 30, .n_head = 2, .block_size = 7, .dropout = 0.1, .vocab_size = 13};
  job.batch = {accumulation * 2 * job.ranks, 2, accumulation};
  job.dtype = job.wire_dtype = dtype;
  job.optimizer.weight_decay = 0.1;
  if (dtype == DType::f16) {  // too large a scale: the first steps are skipped
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p24, .window = 100, .hysteresis = 1};
  }
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  return job;
}

// A device whose collectives run in streams.
Backend streaming_backend() {
  Backend backend = submitted_backend();
  backend.connect = connect_emulated;
  return backend;
}

}  // namespace

TEST_CASE("a device of its own changes no bit, at any stage") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  constexpr int kSteps = 4;
  Sample sample(2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t accumulation : {1, 3})
      for (const int stage : {0, 1, 2, 3}) {
        if (!sample.takes()) continue;
        Job job = small_job(comm->size(), dtype, accumulation);
        job.zero_stage = stage;
        job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
        const RunResult expected = run_steps(job, data, *comm, kSteps);
        for (const bool overlap : {false, true}) {
          job.overlap_comm = overlap;
          INFO(describe(job));
          const RunResult result = run_steps(job, data, *comm, kSteps, 1, submitted_backend());
          CHECK(difference(expected, result, *comm) == "");
          CHECK(result.sent_per_step == expected.sent_per_step);
        }
      }
}

TEST_CASE("a device of its own changes no bit with shards of any size") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int size = 1; size < comm->size(); ++size) {
      if (comm->size() % size != 0) continue;
      Job job = small_job(comm->size(), dtype, 2);
      job.zero_stage = 3;
      job.reduce = ReduceMode::micro_batch;
      job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
      const RunResult expected = run_steps(job, data, *comm, 4);
      job.shards.ranks = size;
      job.overlap_comm = true;
      INFO(describe(job));
      const RunResult result = run_steps(job, data, *comm, 4, 1, submitted_backend());
      CHECK(difference(expected, result, *comm) == "");
      CHECK(result.sent_per_step == result.planned_to_send);
    }
}

TEST_CASE("a device of its own changes no bit of what travels quantized") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() > 1, "one rank sends nothing");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = small_job(comm->size(), dtype, 2);
    job.zero_stage = 3;
    job.reduce = ReduceMode::micro_batch;
    job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
    job.quantize = {.weights = true, .gradients = true};
    job.shards.ranks = comm->size() == 4 ? 2 : 0;
    const RunResult expected = run_steps(job, data, *comm, 4);
    job.overlap_comm = true;
    INFO(describe(job));
    const RunResult result = run_steps(job, data, *comm, 4, 1, submitted_backend());
    CHECK(difference(expected, result, *comm) == "");
    CHECK(result.sent_per_step == result.planned_to_send);
  }
}

TEST_CASE("a padded vocabulary changes no bit, at any stage, tied or not, with offload") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  Sample sample(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int stage : {0, 1, 2, 3})
      for (const bool tied : {false, true})
        for (const OffloadTo offload : {OffloadTo::none, OffloadTo::cpu}) {
          if (!sample.takes()) continue;
          Job job = small_job(comm->size(), dtype, 2);
          job.model.set("tied_head", tied);
          job.zero_stage = stage;
          job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
          const RunResult expected = run_steps(job, data, *comm, 4);
          job.offload.optimizer = offload;
          job.overlap_comm = true;
          INFO(describe(job));
          const RunResult result = run_steps(job, data, *comm, 4, 1, submitted_backend(true, 8));
          CHECK(difference(expected, result, *comm) == "");
          CHECK(result.sent_per_step == result.planned_to_send);
          if (offload == OffloadTo::none) CHECK(result.planned_bytes > expected.planned_bytes);
        }
}

TEST_CASE("a step ends the same on the host and on the device, replayed as a graph or not") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() == 1, "a step of one rank");
  for (const auto& [dtype, accumulation] :
       {std::pair{DType::f32, 2}, {DType::f32, 8}, {DType::f16, 1}, {DType::f16, 5}}) {
    Job job = small_job(1, dtype, accumulation);
    const RunResult expected = run_steps(job, data, *comm, 5);
    for (const bool finish_on_device : {false, true})
      for (const GraphMode graph : {GraphMode::automatic, GraphMode::off}) {
        job.graph = graph;
        const RunResult result =
            run_steps(job, data, *comm, 5, 1, submitted_backend(finish_on_device));
        CHECK(difference(expected, result, *comm) == "");
      }
  }
}

TEST_CASE(
    "collectives in streams have the host's bits where they add in rank order, replayed or not") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() > 1, "one rank sends nothing");
  Sample sample(2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int stage : {0, 1, 2, 3}) {
      if (!sample.takes()) continue;
      // Micro-batches that are one graph, and more, of which those between share a graph.
      Job job = small_job(comm->size(), dtype, stage % 2 == 0 ? 2 : 8);
      job.zero_stage = stage;
      job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
      job.overlap_comm = true;
      const RunResult expected = run_steps(job, data, *comm, 4);
      for (const GraphMode graph : {GraphMode::off, GraphMode::on}) {
        job.graph = graph;
        INFO(describe(job));
        const RunResult result = run_steps(job, data, *comm, 4, 1, streaming_backend());
        CHECK(difference(expected, result, *comm) == "");
        CHECK(result.sent_per_step == result.planned_to_send);
      }
    }
}

TEST_CASE("a transport's own sums give bits of their own, replayed or not") {
  const RandomDataset data(13, 0.1);
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() >= 3, "two summands have one order: needs 3 ranks");
  for (const int stage : {0, 2}) {
    Job job = small_job(comm->size(), DType::bf16, 1);
    job.zero_stage = stage;
    job.graph = GraphMode::off;
    const RunResult in_rank_order = run_steps(job, data, *comm, 4, 1, streaming_backend());
    job.rank_order_sums = false;
    const RunResult ring = run_steps(job, data, *comm, 4, 1, streaming_backend());
    CHECK(difference(in_rank_order, ring, *comm) != "");
    job.graph = GraphMode::on;
    CHECK(difference(ring, run_steps(job, data, *comm, 4, 1, streaming_backend()), *comm) == "");
  }
}

TEST_CASE("a graph that cannot be is refused with the reason") {
  const RandomDataset data(13);
  const auto comm = make_communicator();
  Job job = small_job(comm->size(), DType::f32, 1);
  job.graph = GraphMode::on;
  CHECK_THROWS_WITH(run_steps(job, data, *comm, 1), Catch::Contains("the CPU has no graphs"));
  if (comm->size() > 1)
    CHECK_THROWS_WITH(run_steps(job, data, *comm, 1, 1, submitted_backend()),
                      Catch::Contains("travel through the host"));
  else
    CHECK_THROWS_WITH(run_steps(job, data, *comm, 1, 1, submitted_backend(false)),
                      Catch::Contains("ends a step on the host"));
}

TEST_CASE("a gradient that is not finite is found on a device, too") {
  const RandomDataset data(13);
  const auto comm = make_communicator();
  Job job = small_job(comm->size(), DType::f32, 1);
  job.optimizer.lr = 1e30;
  job.schedule.kind = ScheduleKind::constant;
  CHECK_THROWS_WITH(run_steps(job, data, *comm, 5), Catch::Contains("non-finite"));
  for (const bool finish_on_device : {false, true})
    CHECK_THROWS_WITH(run_steps(job, data, *comm, 5, 1, submitted_backend(finish_on_device)),
                      Catch::Contains("non-finite"));
}
