// A model with frozen layers, registered buffers and two losses. mpirun starts this program.
#include "tests/support/mixed_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/config/load.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/engine/run/run.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

constexpr int kMixedSteps = 8;

// Two micro-batches a step. fp16 begins with a loss scale that is too large, so the first steps are skipped.
Job mixed_job(DType dtype, int ranks, int stages = 1) {
  Job job;
  job.model = MixedModel{};
  job.ranks = ranks;
  job.pipeline.stages = stages;
  job.batch = {4 * ranks / stages, 2, 2};
  job.dtype = job.wire_dtype = dtype;
  job.device = DeviceChoice::cpu;
  job.steps = kMixedSteps;
  job.optimizer.weight_decay = 0.1;
  job.gradient_clipping = 0.5;
  if (dtype == DType::f16) {
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = true, .initial = 0x1p20, .hysteresis = 1};
  }
  return job;
}

// Settings that change no bit. `drive`: a folder.
std::vector<std::function<void(Job&)>> harmless_changes(const std::string& drive) {
  const auto sharded = [](Job& j) {
    j.zero_stage = 3;
    j.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  };
  const auto offload = [=](OffloadTo to, UpdateOn on) {
    return [=](Job& j) {
      sharded(j);
      j.offload.optimizer = j.offload.parameters = to;
      j.offload.optimizer_on = on;
      j.offload.nvme_paths = {drive};
    };
  };
  return {[](Job& j) { j.zero_stage = 1; },
          [](Job& j) { j.zero_stage = 2; },
          sharded,
          [=](Job& j) {
            sharded(j);
            j.gather.max_live_elements = 1;
          },
          [](Job& j) { j.zero_stage = 3; },
          [=](Job& j) {
            sharded(j);
            j.overlap_comm = true;
          },
          [](Job& j) {
            j.recompute = {RecomputeMode::interval, 1};
          },
          [](Job& j) {
            j.recompute = {RecomputeMode::selective, 1};
          },
          offload(OffloadTo::cpu, UpdateOn::host),
          offload(OffloadTo::cpu, UpdateOn::device),
          offload(OffloadTo::nvme, UpdateOn::host),
          [](Job& j) {
            j.zero_stage = 1;
            j.offload.optimizer = OffloadTo::cpu;
            j.offload.optimizer_on = UpdateOn::host;
            j.offload.ratio = 0.5;
          }};
}

// Returns the path of rank 0. Collective.
std::string path_of_root(const TempDir& folder, Communicator& comm) {
  const std::string path = folder.path();
  const std::vector<double> mine(path.begin(), path.end());
  std::vector<double> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.gather_values(mine, all);
  std::string root;
  for (size_t i = 0; i < path.size(); ++i) root += static_cast<char>(all[i]);
  return root;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The losses of a run's steps and validations.
std::vector<nlohmann::json> lines_of(const std::string& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json all = nlohmann::json::parse(line);
    nlohmann::json& kept = lines.emplace_back();
    for (const char* key : {"step", "loss", "losses", "val_loss", "val_losses", "skipped"})
      if (all.contains(key)) kept[key] = all[key];
  }
  return lines;
}

// A model of ones, which counts the rows that it has seen.
const ModelFamily& counting() {
  static const ModelFamily family =
      mixed_over_tokens("counting", [](Builder& b, const ModelConfig& c) {
        const int64_t width = c.integer("width"), ids = c.integer("vocab_size"),
                      length = c.integer("length");
        b.unit("all");
        const BufferId table = b.vocabulary("table", {ids, width}, Init::ones, 0, Trainable::no);
        const BufferId x = b.embed(b.input("ids", InputRole::token_ids, DType::i32, {length}),
                                   table, kNone, length);
        const BufferId rows = b.registered_buffer("rows", {width}, Init::zeros),
                       mean = b.registered_buffer("mean", {width}, Init::ones);
        if (b.options().training) {
          const BufferId sums = b.column_sums(x);
          b.update_buffer(rows, sums, {.keep = 1, .share = 1});
          b.update_buffer(mean, sums, {.keep = 0.5f, .share = 0.25f, .per_sample = true});
        }
        const BufferId head = b.vocabulary("head", {ids, width}, Init::normal, 0.02f);
        b.cross_entropy(b.linear(x, head, kNone, Activation::none),
                        b.input("targets", InputRole::labels, DType::i32, {length}), ids);
      });
  return family;
}

// Trains with files. Collective.
void train_in(const std::string& folder, Job job, const Dataset& data, Communicator& comm,
              int steps, bool resume) {
  RunContext context{implementations()};
  context.comm = &comm;
  job.output = folder;
  job.steps = steps;
  if (resume) job.resume = folder;
  job.eval_samples = 4;
  job.eval_interval = 2;
  train(job, data, context);
}

}  // namespace

TEST_CASE("it trains with the same bits at every stage, with recompute and offload") {
  const auto comm = make_communicator();
  Communicator& world = *comm;
  const RandomDataset data(11, 0.1);
  const TempDir drive;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Job job = mixed_job(dtype, world.size());
    const RunResult expected = run_steps(job, data, world, kMixedSteps);
    CHECK(expected.skipped.front() == (dtype == DType::f16));
    CHECK(std::ranges::count(expected.skipped, 0) > 2);
    for (const auto& change : harmless_changes(drive.path())) {
      Job changed = job;
      change(changed);
      INFO(describe(changed));
      CHECK(difference(expected, run_steps(changed, data, world, kMixedSteps), world) == "");
    }
  }
}

TEST_CASE("a registered buffer adds up all micro-batches of all ranks, in steps that count") {
  const auto comm = make_communicator();
  const RandomDataset data(11);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int stage : {0, 3}) {
      Job job = mixed_job(dtype, comm->size());
      job.zero_stage = stage;
      job.model = ModelConfig(counting());
      for (const char* key : {"width", "length", "vocab_size"})
        job.model.set(key, ModelConfig(MixedModel{}).integer(key));
      const RunResult run = run_steps(job, data, *comm, kMixedSteps);
      if (comm->rank() != 0) continue;
      float rows = 0, mean = 1;
      for (const int skipped : run.skipped) {
        if (skipped) continue;
        rows += static_cast<float>(5 * job.batch.train_batch);
        mean = 0.5f * mean + 0.25f * 5;
      }
      CHECK(rows > 0);
      std::vector<float> expected(10, rows);
      expected.resize(20, mean);
      CHECK(run.buffers == expected);
    }
}

TEST_CASE("the loss is the weighted sum of all, and the file has each of them") {
  const auto comm = make_communicator();
  const RandomDataset data(11, 0.1);
  const TempDir own;
  const std::string root = path_of_root(own, *comm);
  Job job = mixed_job(DType::f32, comm->size());
  train_in(root + "/two", job, data, *comm, 2, false);
  job.model.set("two_losses", false);
  train_in(root + "/one", job, data, *comm, 2, false);
  comm->barrier();
  if (comm->rank() != 0) return;
  const auto check_sum = [](const nlohmann::json& line, const char* sum, const char* parts) {
    REQUIRE(line.contains(parts));
    CHECK(line[parts].size() == 2);
    const double early = line[parts]["early"], last = line[parts]["loss"];
    CHECK(early > 0);
    CHECK(line[sum].get<double>() == Approx(static_cast<double>(0.3f) * early + last));
  };
  const std::vector<nlohmann::json> two = lines_of(root + "/two"), one = lines_of(root + "/one");
  REQUIRE(two.size() == 3);
  check_sum(two[0], "loss", "losses");
  check_sum(two[2], "val_loss", "val_losses");
  // The last loss of the first step is that of the model without the other one.
  CHECK(two[0]["losses"]["loss"] == one[0]["loss"]);
  CHECK_FALSE(one[0].contains("losses"));
  CHECK_FALSE(one[2].contains("val_losses"));
}

TEST_CASE("shards of parameters have the bits of whole ones") {
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() == 4, "shards of two of four ranks");
  const RandomDataset data(11, 0.1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Job job = mixed_job(dtype, 4);
    Job shards = job;
    shards.zero_stage = 3;
    shards.gather = {.param_persistence = 0, .max_reuse_distance = 0};
    shards.shards = {.ranks = 2, .parameters = true};
    CHECK(difference(run_steps(job, data, *comm, kMixedSteps),
                     run_steps(shards, data, *comm, kMixedSteps), *comm) == "");
  }
}

TEST_CASE("a pipeline has the bits of one rank, where its first stage is frozen too") {
  const auto comm = make_communicator();
  SKIP_UNLESS(comm->size() == 2, "two stages");
  const RandomDataset data(11, 0.1);
  SelfComm self;
  for (const DType dtype : {DType::f32, DType::f16})
    for (const int64_t second : {1, 2, 3, 5})  // the first layer of the second stage
      for (const auto& recompute : {RecomputeMode::none, RecomputeMode::interval}) {
        CAPTURE(name_of(dtype), second, static_cast<int>(recompute));
        Job job = mixed_job(dtype, 2, 2);
        job.pipeline.first_layers = {0, second};
        job.recompute = {recompute, 1};
        Job alone = mixed_job(dtype, 1);
        const RunResult by_one = run_steps(alone, data, self, kMixedSteps);
        const RunResult by_two = run_steps(job, data, *comm, kMixedSteps);
        CHECK(by_two.loss == by_one.loss);
        CHECK(by_two.norm == by_one.norm);
        if (comm->rank() != 0) continue;
        CHECK(by_two.weights == by_one.weights);
        CHECK(by_two.buffers == by_one.buffers);
      }
}

TEST_CASE("training leaves what is frozen as it was, in files too, and a resumed run goes on") {
  const auto comm = make_communicator();
  const RandomDataset data(11, 0.1);
  std::vector<Job> jobs;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int stage : {0, 3}) {
      jobs.push_back(mixed_job(dtype, comm->size()));
      jobs.back().zero_stage = stage;
    }
  if (comm->size() == 2) {
    jobs.push_back(mixed_job(DType::bf16, 2, 2));
    jobs.back().pipeline.first_layers = {0, 1};
  }
  for (const Job& job : jobs) {
    INFO(describe(job));
    const TempDir own;
    const std::string root = path_of_root(own, *comm);
    train_in(root + "/start", job, data, *comm, 0, false);
    train_in(root + "/whole", job, data, *comm, kMixedSteps, false);
    train_in(root + "/parts", job, data, *comm, 2, false);
    train_in(root + "/parts", job, data, *comm, kMixedSteps, true);
    Job loaded = job;
    loaded.init_weights = root + "/whole/model.safetensors";
    train_in(root + "/loaded", loaded, data, *comm, 0, false);
    comm->barrier();
    if (comm->rank() != 0) continue;
    const auto weights = [&](const char* run) {
      return bytes_of(fmt::format("{}/{}/model.safetensors", root, run));
    };
    const std::string start = weights("start"), whole = weights("whole");
    REQUIRE(!whole.empty());
    CHECK(weights("parts") == whole);
    CHECK(weights("loaded") == whole);
    CHECK(lines_of(root + "/parts") == lines_of(root + "/whole"));
    const InputFile file(root + "/whole/model.safetensors", "the weights");
    for (const SafetensorsTensor& t : read_safetensors_header(file).tensors) {
      const auto at = static_cast<size_t>(t.begin), n = static_cast<size_t>(t.end - t.begin);
      const std::set<std::string> trained{"hidden.0.bias", "hidden.1.weight", "hidden.3.bias",
                                          "early.weight",  "head.weight",     "hidden.1.mean",
                                          "head.slope"};
      const bool frozen = !trained.contains(t.name);
      CAPTURE(t.name);
      CHECK((start.substr(at, n) == whole.substr(at, n)) == frozen);
    }
  }
}

}  // namespace dstrain
