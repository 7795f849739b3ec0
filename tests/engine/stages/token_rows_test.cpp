// Sparse gradients: the token embedding's gradient as rows of tokens. The sum by the definition, the same bits on all
// ranks, bytes, and runs near those of the whole table. mpirun starts this program on 2 to 4 ranks.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/world.h"
#include "runtime/config/sparse_gradients.h"
#include "runtime/engine/run/trainer.h"
#include "tests/engine/stages/pipeline_jobs.h"
#include "tests/support/distance.h"
#include "tests/support/sample.h"

using namespace dstrain;

namespace {

constexpr int kVocabulary = 501;  // large beside the 14 tokens of a rank's micro-batch

Job rows_job(int ranks, DType dtype, int64_t accumulation = 2) {
  Job job = pipeline_job(dtype, ranks, 1, accumulation);
  job.model.set("vocab_size", kVocabulary);
  job.gradient_clipping = 0.5;
  job.sparse_gradients = true;
  return job;
}

class Trained {
 public:
  Trained(const Job& job, const Dataset& data, Communicator& comm, int steps) {
    context_.comm = &comm;
    trainer_ =
        std::make_unique<Trainer>(job, data, context_, make_backend(implementations(), job.device));
    trainer_->load();
    for (int i = 0; i < steps; ++i) trainer_->step();
  }
  const StepState& state() const { return trainer_->state(); }
  // Returns the values of a unit's buffer, as they are held.
  std::vector<uint8_t> bytes_of(const std::string& buffer) {
    const Tensor held =
        trainer_->arenas().tensor(trainer_->plan(), trainer_->plan().program.find(buffer));
    const auto* begin = held.as<uint8_t>();
    return {begin, begin + held.bytes()};
  }

 private:
  RunContext context_{implementations()};
  std::unique_ptr<Trainer> trainer_;
};

// Returns whether all ranks have the same bytes.
bool equal_on_all(std::vector<uint8_t> mine, Communicator& comm) {
  const auto n = static_cast<int64_t>(mine.size());
  std::vector<uint8_t> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.all_gather({mine.data(), {n}, DType::u8}, {all.data(), {n * comm.size()}, DType::u8}).wait();
  for (size_t r = 0; r < static_cast<size_t>(comm.size()); ++r)
    if (std::memcmp(all.data() + r * mine.size(), mine.data(), mine.size()) != 0) return false;
  return true;
}

}  // namespace

TEST_CASE(
    "token rows: the table's gradient is that of one rank with the samples of all, bit for bit") {
  const RandomDataset data(kVocabulary);
  const auto world = make_communicator();
  SelfComm self;
  for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
    Job job = rows_job(world->size(), DType::f32);
    job.reduce = reduce;
    REQUIRE(sends_token_rows(job));
    Job alone = job;
    alone.ranks = 1;
    // The samples of a micro-batch of all ranks, in rank order.
    alone.batch.micro_batch *= world->size();
    const auto table =
        static_cast<ptrdiff_t>(kVocabulary * job.model.integer("n_embd") * sizeof(float));
    std::vector<uint8_t> expected = Trained(alone, data, self, 1).bytes_of("grads:embedding");
    std::vector<uint8_t> rows = Trained(job, data, *world, 1).bytes_of("grads:embedding");
    CHECK(std::equal(rows.begin(), rows.begin() + table, expected.begin()));
    CHECK(std::any_of(rows.begin(), rows.begin() + table, [](uint8_t b) { return b != 0; }));
  }
}

TEST_CASE(
    "token rows: all ranks have the same bits, sent is what was planned, and losses are those of "
    "the table") {
  const RandomDataset data(kVocabulary, 0.1);
  const auto world = make_communicator();
  Sample sample(8);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
      for (const DType wire : {DType::f32, DType::bf16})
        for (const DType held : {DType::f32, dtype}) {
          if (!sample.takes()) continue;
          Job job = rows_job(world->size(), dtype);
          job.reduce = reduce;
          job.wire_dtype = wire;
          job.grad_dtype = held;
          INFO(describe(job));
          REQUIRE(sends_token_rows(job));
          Trained trained(job, data, *world, 3);
          CHECK(equal_on_all(trained.bytes_of("params:embedding"), *world));
          CHECK(equal_on_all(trained.bytes_of("grads:embedding"), *world));
          const RunResult rows = run_steps(job, data, *world, kSteps);
          CHECK(rows.sent_per_step == rows.planned_to_send);
          job.overlap_comm = true;
          job.recompute = {RecomputeMode::interval, 1};
          CHECK(difference(rows, run_steps(job, data, *world, kSteps, 2), *world) == "");
          job.sparse_gradients = false;
          const RunResult table = run_steps(job, data, *world, kSteps);
          CHECK(rows.sent_per_step < table.sent_per_step);
          CHECK(rows.skipped == table.skipped);
          const bool exact = dtype == DType::f32 && wire == DType::f32;
          for (size_t i = 0; i < rows.loss.size(); ++i) {
            CHECK(rows.loss[i] == Approx(table.loss[i]).epsilon(exact ? 1e-6 : 1e-3));
            if (!rows.skipped[i])
              CHECK(rows.norm[i] == Approx(table.norm[i]).epsilon(exact ? 1e-5 : 0.02));
          }
          if (exact) CHECK(largest_distance(table.weights, rows.weights) < 1e-4);
        }
}

TEST_CASE("token rows: gradients that overflow skip the step") {
  const RandomDataset data(kVocabulary);
  const auto world = make_communicator();
  const Job job = rows_job(world->size(), DType::f16);
  const RunResult rows = run_steps(job, data, *world, kSteps);
  CHECK(rows.skipped.front() == 1);
  CHECK(rows.skipped.back() == 0);
  for (const float weight : rows.weights) REQUIRE(std::isfinite(weight));
}

TEST_CASE("token rows: on an emulated device ranks have the same bits, near those of the table") {
  const RandomDataset data(kVocabulary);
  const auto world = make_communicator();
  Job job = rows_job(world->size(), DType::bf16);
  job.device = DeviceChoice::emulated;
  REQUIRE(sends_token_rows(job));
  const RunResult rows = run_steps(job, data, *world, 3);
  CHECK(rows.sent_per_step == rows.planned_to_send);
  Trained trained(job, data, *world, 3);
  CHECK(equal_on_all(trained.bytes_of("params:embedding"), *world));
  job.sparse_gradients = false;
  const RunResult table = run_steps(job, data, *world, 3);
  for (size_t i = 0; i < rows.loss.size(); ++i)
    CHECK(rows.loss[i] == Approx(table.loss[i]).epsilon(1e-3));
}
