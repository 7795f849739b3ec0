#include "runtime/plan/settings/largest.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "tests/plan/plans.h"
#include "tests/support/decoders.h"

using namespace dstrain;

namespace {

constexpr int64_t kMega = 1000000;

// A bf16 run of small batches on `ranks` ranks.
Job searched_job(int ranks) {
  Job job = small_job();
  job.dtype = job.wire_dtype = DType::bf16;
  job.ranks = ranks;
  job.batch = {ranks, 1, 1};
  return job;
}

bool fits(const PlannedMemory& memory, const MachineMemory& machine, int ranks) {
  return memory.device <= machine.device && memory.host * ranks <= machine.host &&
         memory.disk * ranks <= machine.disk;
}

}  // namespace

TEST_CASE("less on the device means larger models, and what is found fits") {
  for (const int ranks : {1, 2}) {
    const MachineMemory machine{48 * kMega, 1000 * kMega, 5000 * kMega};
    const std::vector<LargestModel> models =
        largest_models(searched_job(ranks), machine, fake_inputs());
    REQUIRE(models.size() == 6);
    CHECK(models[0].settings.empty());
    for (const LargestModel& m : models) {
      CAPTURE(ranks, m.settings);
      REQUIRE(m.parameters > 0);
      CHECK(fits(m.memory, machine, ranks));
      CHECK(m.model.integer("n_embd") == 128 * m.model.integer("n_head"));
      CHECK((m.limit == "device" || m.limit == "host" || m.limit == "disk"));
    }
    // From resident to the optimizer on the host, and to parameters there too.
    CHECK(models[1].parameters >= models[0].parameters);
    CHECK(models[2].parameters > 2 * models[1].parameters);
    CHECK(models[3].parameters > models[2].parameters);
    CHECK(models[1].memory.host == 0);
    CHECK(models[2].memory.host > 0);
    CHECK(models[5].memory.disk > models[4].memory.disk);
  }
}

TEST_CASE("the heads of what is found divide among tensor and sequence ranks") {
  Job job = searched_job(4);
  job.sequence_ranks = job.tensor_ranks = 2;
  job.model.set("block_size", 8);
  job.batch = {1, 1, 1};
  const MachineMemory machine{480 * kMega, 4000 * kMega, 0};
  const std::vector<LargestModel> models = largest_models(job, machine, fake_inputs());
  REQUIRE(models.size() == 4);
  for (const LargestModel& m : models) {
    CAPTURE(m.settings);
    REQUIRE(m.parameters > 0);
    CHECK(m.model.integer("n_head") % 4 == 0);
    CHECK(m.model.integer("n_embd") == 128 * m.model.integer("n_head"));
    CHECK(fits(m.memory, machine, 4));
  }
}

TEST_CASE("heads of keys that are fewer divide the heads of what is found") {
  Job job = searched_job(1);
  job.model = decoder("llama", {{"num_attention_heads", int64_t{8}},
                                {"num_key_value_heads", int64_t{2}},
                                {"hidden_size", int64_t{64}},
                                {"num_hidden_layers", int64_t{1}}});
  for (const LargestModel& m : largest_models(job, {100 * kMega, 1000 * kMega, 0}, fake_inputs())) {
    CAPTURE(m.settings);
    REQUIRE(m.parameters > 0);
    CHECK(m.model.integer("num_attention_heads") % 2 == 0);
    CHECK(m.model.integer("num_key_value_heads") == 2);
  }
}

TEST_CASE("an optimizer without state leaves room for more parameters") {
  Job job = searched_job(1);
  job.dtype = job.wire_dtype = DType::f32;
  job.optimizer.kind = OptimizerKind::sgd;
  job.optimizer.momentum = 0;
  const MachineMemory machine{48 * kMega, 0, 0};
  const LargestModel resident = largest_models(job, machine, fake_inputs()).front();
  CHECK(resident.parameters * 8 > 40 * kMega);  // a weight and a gradient of four bytes
  CHECK(fits(resident.memory, machine, 1));
  CHECK_FALSE(resident.limit.empty());
}

TEST_CASE("an optimizer that every rank needs whole is searched as it is configured") {
  Job job = searched_job(2);
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  const MachineMemory machine{48 * kMega, 1000 * kMega, 5000 * kMega};
  const std::vector<LargestModel> models = largest_models(job, machine, fake_inputs());
  REQUIRE(models.size() == 1);
  CHECK(models[0].settings.empty());
  CHECK(models[0].parameters > 0);
}

TEST_CASE("no larger model of the family fits, by what is named as the limit") {
  Job job = searched_job(1);
  const MachineMemory machine{48 * kMega, 100 * kMega, 0};
  const std::vector<LargestModel> models = largest_models(job, machine, fake_inputs());
  REQUIRE(models.size() == 4);  // no disk
  const LargestModel& resident = models[0];
  const int64_t channels = resident.model.integer("n_embd") / resident.model.integer("n_layer");
  job.model = resident.model;
  const PlannedMemory found = planned_memory(job, fake_inputs());
  CHECK(found.device == resident.memory.device);
  job.model.set("n_embd", job.model.integer("n_embd") + 128);
  job.model.set("n_head", job.model.integer("n_head") + 1);
  job.model.set("n_layer", job.model.integer("n_embd") / channels);
  CHECK(planned_memory(job, fake_inputs()).device > machine.device);
  CHECK(resident.limit == "device");
  CHECK(models[3].limit == "host");
}

TEST_CASE("more memory than can be counted is refused") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Job job = searched_job(2);
  for (const MachineMemory& machine :
       {MachineMemory{kMost, 0, 0}, {kMega, kMost, 0}, {kMega, kMost, kMost}, {kMost / 2, 2, 2}})
    CHECK_THROWS_AS(largest_models(job, machine, fake_inputs()), UserError);
}

TEST_CASE("where nothing fits that is said, and a model that is no GPT is refused") {
  const std::vector<LargestModel> models =
      largest_models(searched_job(1), {1000, 1000, 0}, fake_inputs());
  for (const LargestModel& m : models) CHECK(m.parameters == 0);
  const Job job = searched_job(1);
  CHECK(largest_text(models, job, {1000, 1000, 0}).find("none") != std::string::npos);
  const auto json = nlohmann::json::parse(largest_json(models, job.model.family()));
  REQUIRE(json.size() == models.size());
  CHECK(json[0]["n_layer"] == 0);
  CHECK(json[0]["settings"] == "");
  Job benchmark = job;
  benchmark.model = BenchmarkModel{};
  CHECK_THROWS_AS(largest_models(benchmark, {1000, 1000, 0}, fake_inputs()), UserError);
}
