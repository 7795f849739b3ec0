// Parameters and gradients that travel quantized: what ranks compute with and add, bytes, and what changes no bit.
// mpirun starts this program on 2 to 4 ranks.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "runtime/engine/run/trainer.h"
#include "tests/engine/layers/rounded_weights.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/ir/int4_definition.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

// A model of odd sizes; fp16 begins with skipped steps.
Job codec_job(int ranks, DType dtype, int64_t accumulation = 2) {
  Job job = pipeline_job(dtype, ranks, 1, accumulation);
  job.zero_stage = 3;
  job.reduce = ReduceMode::micro_batch;
  job.gradient_clipping = 0.5;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.quantize.weights = true;
  return job;
}

std::vector<int> shard_sizes(int ranks) {
  std::vector<int> sizes;
  for (int size = 1; size < ranks; ++size)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes;
}

// Rounds the values of a part to those that int4 stands for, by the definition.
void round_to_int4(std::vector<float>& x) {
  x = from_int4(to_int4(x), x.size());
}

// The samples of one rank of several, for a run of this rank alone.
class ShareOf : public Dataset {
 public:
  ShareOf(const Dataset& all, int64_t first) : all_(all), first_(first) {}
  int64_t samples(Split split) const override { return all_.samples(split); }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    all_.read(split, first_ + first, count, inputs);
  }
  const Vocabulary& vocabulary() const override { return all_.vocabulary(); }

 private:
  const Dataset& all_;
  int64_t first_;
};

// Returns the gradients of each unit after the first step, as they are held, in f32.
std::map<std::string, std::vector<float>> first_gradients(const Job& job, const Dataset& data,
                                                          Communicator& comm) {
  RunContext context{implementations()};
  context.comm = &comm;
  Trainer trainer(job, data, context, make_backend(implementations(), job.device));
  trainer.load();
  trainer.step();
  std::map<std::string, std::vector<float>> gradients;
  const Program& program = trainer.plan().program;
  for (const Unit& unit : program.units) {
    const Tensor held = trainer.arenas().tensor(trainer.plan(), program.find("grads:" + unit.name));
    std::vector<float>& to = gradients[unit.name];
    for (int64_t i = 0; i < held.elements(); ++i)
      to.push_back(held.dtype == DType::f32 ? held.as<float>()[i] : to_float(held.as<bf16>()[i]));
  }
  return gradients;
}

// Returns the sum of this rank's part by the definition. `all`: the gradients of each rank, `part` elements for each.
std::vector<float> sum_of_parts(const std::vector<float>& all, int ranks, int group, int rank,
                                int64_t part) {
  const auto sent = [&](int from) {
    const auto begin = all.begin() + (int64_t{from} * ranks + rank) * part;
    std::vector<float> x(begin, begin + part);
    round_to_int4(x);
    return x;
  };
  const auto add = [](std::vector<float>& sum, const std::vector<float>& x) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  };
  std::vector<float> sum(static_cast<size_t>(part), 0);
  for (int first = 0; first < ranks; first += group) {
    std::vector<float> of_group(sum.size(), 0);
    for (int i = 0; i < group; ++i) add(of_group, sent(first + i));
    if (group > 1 && group < ranks) round_to_int4(of_group);
    add(sum, of_group);
  }
  return sum;
}

}  // namespace

TEST_CASE("every rank computes with the values that travel, and keeps its own") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = codec_job(world->size(), dtype);
    const auto quantized = first_step(job, data, *world, false);
    job.quantize = {};
    const auto plain = first_step(job, data, *world, false);
    CHECK(first_step(job, data, *world, true) == quantized);
    CHECK(plain != quantized);
    CHECK(quantized.first == Approx(plain.first).epsilon(0.01));
    // Nothing is learned: the weights are the ones that the run began with.
    job.optimizer.lr = 0;
    const RunResult before = run_steps(job, data, *world, 2);
    job.quantize.weights = true;
    CHECK(run_steps(job, data, *world, 2).weights == before.weights);
  }
}

TEST_CASE("quantized weights: neither shards nor what runs beside computation change a bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = codec_job(world->size(), dtype);
      job.reduce = reduce;
      const RunResult expected = run_steps(job, data, *world, kSteps);
      CHECK(expected.sent_per_step == expected.planned_to_send);
      std::vector<int> sizes = shard_sizes(world->size());
      sizes.push_back(0);
      for (const int size : sizes)
        for (const bool overlap : {false, true})
          for (const int64_t reuse : {int64_t{0}, int64_t{5000}, int64_t{1'000'000'000}}) {
            if (!sample.takes()) continue;
            job.shards.ranks = size;
            job.overlap_comm = overlap;
            job.gather.max_reuse_distance = reuse;
            job.recompute = {overlap ? RecomputeMode::interval : RecomputeMode::none, 1};
            INFO(describe(job));
            const RunResult result = run_steps(job, data, *world, kSteps);
            CHECK(difference(expected, result, *world) == "");
            CHECK(result.sent_per_step == result.planned_to_send);
          }
    }
}

TEST_CASE("quantized weights: slices that shards are packed of may be in any space") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  const TempDir drive;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = codec_job(world->size(), dtype);
    const RunResult expected = run_steps(job, data, *world, kSteps);
    std::vector<int> sizes = shard_sizes(world->size());
    sizes.push_back(0);
    for (const int size : sizes)
      for (const OffloadTo to : {OffloadTo::cpu, OffloadTo::nvme})
        for (const int64_t reuse : {int64_t{0}, int64_t{1'000'000'000}}) {
          Job moved = job;
          moved.shards.ranks = size;
          moved.gather.max_reuse_distance = reuse;
          moved.overlap_comm = reuse == 0;
          moved.offload = {.optimizer = to, .nvme_paths = {drive.path()}, .parameters = to};
          moved.offload.max_in_cpu = 1000;
          INFO(describe(moved));
          const RunResult result = run_steps(moved, data, *world, kSteps);
          CHECK(difference(expected, result, *world) == "");
          CHECK(result.sent_per_step == result.planned_to_send);
        }
  }
}

TEST_CASE("quantized: the same bits with offloaded state, and in a pipeline") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Job job = codec_job(world->size(), DType::bf16);
  job.quantize.gradients = true;
  const RunResult expected = run_steps(job, data, *world, kSteps);
  job.offload = {.optimizer = OffloadTo::cpu, .parameters = OffloadTo::cpu};
  CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
  SKIP_UNLESS(world->size() == 4, "a pipeline of two stages with two ranks each needs 4 ranks");
  job = codec_job(2, DType::bf16, 4);
  job.ranks = 4;
  job.pipeline.stages = 2;
  compare(without_pipeline(job, data, *world), job, data, *world);
}

TEST_CASE("quantized gradients are those of the definition, in one hop and in two") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  const int ranks = world->size(), rank = world->rank();
  if (ranks == 3) return;  // a rank alone divides by its own targets: exact for powers of two
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
      Job job = codec_job(ranks, dtype, 1);
      job.quantize = {};
      job.model.set("dropout", 0);
      job.reduce = reduce;
      Job alone = job;
      alone.ranks = 1;
      alone.zero_stage = 0;
      alone.reduce = ReduceMode::boundary;
      alone.wire_dtype = DType::f32;
      alone.batch.train_batch = alone.batch.micro_batch;
      SelfComm self;
      const auto mine = first_gradients(alone, ShareOf(data, rank * job.batch.micro_batch), self);
      for (const int group : {1, 2}) {
        if (group == 2 && ranks == 2) continue;
        job.quantize.gradients = true;
        job.shards = {group, false, false};
        int64_t wrong = 0;
        for (const auto& [unit, sum] : first_gradients(job, data, *world)) {
          const auto part =
              static_cast<int64_t>(sum.size()) / (reduce == ReduceMode::boundary ? ranks : 1);
          std::vector<float> padded(static_cast<size_t>(part * ranks), 0);
          for (size_t i = 0; i < std::min(padded.size(), mine.at(unit).size()); ++i)
            padded[i] = mine.at(unit)[i] / static_cast<float>(ranks);
          std::vector<float> all(padded.size() * static_cast<size_t>(ranks));
          world
              ->all_gather({padded.data(), {part * ranks}, DType::f32},
                           {all.data(), {part * ranks * ranks}, DType::f32})
              .wait();
          const std::vector<float> expected = sum_of_parts(all, ranks, group, rank, part);
          const int64_t begin = reduce == ReduceMode::boundary ? rank * part : 0;
          for (int64_t i = 0; i < part; ++i)
            wrong += sum[static_cast<size_t>(begin + i)] != expected[static_cast<size_t>(i)];
        }
        INFO(describe(job));
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("quantized gradients: what runs beside computation and what is sharded change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(3);
  std::vector<int> groups = shard_sizes(world->size());
  groups.push_back(0);
  for (const int group : groups)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const DType held : {DType::f32, dtype})
        for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
          if (!sample.takes()) continue;
          Job job = codec_job(world->size(), dtype);
          job.quantize = {.weights = false, .gradients = true};
          job.shards = {group, false, false};
          job.reduce = reduce;
          job.grad_dtype = held;
          job.loss_scale.initial = std::min(job.loss_scale.initial, 0x1p21);
          const RunResult expected = run_steps(job, data, *world, kSteps);
          if (dtype == DType::f16) {
            CHECK(expected.skipped.front() == 1);
            CHECK(expected.skipped.back() == 0);
          }
          job.overlap_comm = true;
          for (const bool parameters : {false, true}) {
            job.shards.parameters = parameters;
            INFO(describe(job));
            const RunResult result = run_steps(job, data, *world, kSteps);
            CHECK(difference(expected, result, *world) == "");
            CHECK(result.sent_per_step == result.planned_to_send);
          }
          job.quantize = {};
          const RunResult plain = run_steps(job, data, *world, kSteps);
          CHECK(expected.loss.back() == Approx(plain.loss.back()).epsilon(0.02));
          if (dtype != DType::f16)  // of the same weights
            CHECK(expected.norm.front() == Approx(plain.norm.front()).epsilon(0.15));
        }
}

TEST_CASE("all of ZeRO++ in the stages of a pipeline has the bits of each stage's ranks alone") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 4, "a pipeline of two stages with two ranks each needs 4 ranks");
  Job job = codec_job(2, DType::bf16, 4);
  job.quantize.gradients = true;
  job.ranks = 4;
  job.pipeline.stages = 2;
  compare(without_pipeline(job, data, *world), job, data, *world);
}
