// A model that the program does not know trains as its own do. mpirun starts this program.
#include "tests/models/own_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/config/load.h"
#include "runtime/config/report/resolved_config.h"
#include "runtime/core/error.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

// One whose loss is not computed in pieces: the slope of relu follows from the logits.
const ModelFamily& blunt() {
  static const ModelFamily family = [] {
    ModelFamily f = bigram_with_notes();
    f.type = "blunt";
    f.title = "blunt model";
    std::erase_if(f.inputs, [](const ModelInput& i) { return i.role == InputRole::features; });
    f.build = [](Builder& b, const ModelConfig& c) {
      const int64_t width = c.integer("width"), length = c.integer("length");
      b.unit("all");
      const BufferId table =
          b.vocabulary("table", {c.integer("vocab_size"), width}, Init::normal, 0.02f);
      const BufferId ids = b.input("ids", InputRole::token_ids, DType::i32, {length});
      const BufferId logits =
          b.linear(b.embed(ids, table, kNone, length), table, kNone, Activation::relu);
      b.cross_entropy(logits, b.input("targets", InputRole::labels, DType::i32, {length}),
                      c.integer("vocab_size"));
    };
    return f;
  }();
  return family;
}

const ModelRegistry& registry() {
  static const ModelRegistry models(
      {own_models().families().front(), &bigram_with_notes(), &blunt()});
  return models;
}

// Returns what a configuration with this section `model`, and further members before it, comes to on `ranks` ranks with
// --set.
LoadedConfig checked(const std::string& model, const std::string& members = "", int ranks = 1,
                     std::vector<std::string> sets = {}) {
  const TempDir folder;
  ConfigRequest request;
  request.models = &registry();
  request.path = folder.write("c.json", fmt::format(R"({{"train_micro_batch_size_per_gpu": 2, {}
                                "dstrain": {{"model": {{"type": "bigram"{}{}}}}}}})",
                                                    members, model.empty() ? "" : ", ", model));
  request.ranks = ranks;
  request.sets = std::move(sets);
  return check_config(request);
}

std::string message_on(const LoadedConfig& loaded, const std::string& key) {
  for (const Verdict& v : loaded.verdicts)
    if (v.key == key) return v.message;
  return "no verdict";
}

}  // namespace

TEST_CASE("its keys are those of the configuration") {
  const LoadedConfig loaded = checked(R"("depth": 3, "vocab_size": 11)");
  REQUIRE_FALSE(has_errors(loaded.verdicts));
  const ModelConfig& model = loaded.job.model;
  CHECK(&model.family() == &bigram_with_notes());
  CHECK(model.layers() == 3);
  CHECK(model.width() == 64);
  CHECK(model.context() == 32);
  CHECK(model.vocabulary() == 11);
  Job named = loaded.job;
  named.output_by_default = false;  // a resolved configuration names the directory
  CHECK(job_from_resolved(resolved_config_json(loaded), registry()) == named);
  CHECK(message_on(checked(R"("depth": 0)"), "dstrain.model.depth") ==
        "expected an integer from 1 to 2048, found 0");
  CHECK(message_on(checked(R"("n_embd": 8)"), "dstrain.model.n_embd") ==
        "belongs to gptlite, not to bigram");
  CHECK(message_on(checked(R"("dept": 2)"), "dstrain.model.dept") ==
        "unknown key (did you mean dstrain.model.depth?)");
  CHECK(message_on(checked("", R"("pipeline": {"stages": 5},)", 5), "pipeline.stages") ==
        "5 stages are more than the 4 layers of the model, embedding, notes and head included");
}

TEST_CASE("its sizes are those of its program") {
  const ModelMeasures m =
      checked(R"("depth": 7, "width": 10, "vocab_size": 11)").job.model.measures();
  CHECK(m.layers == 10);
  CHECK(m.parameters == 2 * 11 * 10 + 7 * (10 * 10 + 10) + 10 * 4);
  CHECK(m.matrix_elements == 2 * 11 * 10 + 7 * 10 * 10 + 10 * 4);
  CHECK(m.rows == 32);
  CHECK(m.logits == 32 * 11);
  CHECK(m.divides_loss);
  REQUIRE(m.token_table);
  CHECK(m.token_table->name == "embedding.weight");
  CHECK_FALSE(m.token_table->shared);
}

TEST_CASE("a loss that cannot be divided is computed whole, and check says so") {
  const std::string model = R"("vocab_size": 11)";
  const LoadedConfig loaded =
      checked(model, "", 1, {"dstrain.model.type=blunt", "dstrain.loss_chunks=4"});
  REQUIRE_FALSE(has_errors(loaded.verdicts));
  CHECK(loaded.job.loss_chunks == 1);
  CHECK(loaded.job.model.measures().token_table->shared);
  CHECK(checked(model, "", 1, {"dstrain.loss_chunks=4"}).job.loss_chunks == 4);
  CHECK(message_on(loaded, "dstrain.loss_chunks") ==
        "the loss of the blunt model cannot be computed in pieces");
}

TEST_CASE("a program must declare the inputs that its family has") {
  const auto problem = [](auto build) {
    ModelFamily family = bigram_with_notes();
    family.build = build;
    ModelConfig model(family);
    model.set_vocabulary(11);
    Program program;
    Builder builder(program, {.batch = 2});
    try {
      build_model(builder, model);
    } catch (const InternalError& e) {
      return std::string(e.what());
    }
    return std::string("no problem");
  };
  CHECK(problem(bigram_with_notes().build) == "no problem");
  const std::string has =
      ", and the family has [ids: token ids i32 (32); notes: features f32 (32, 4); targets: labels "
      "i32 (32)]";
  CHECK(problem([](Builder& b, const ModelConfig&) {
          b.input("ids", InputRole::token_ids, DType::i32, {31});
        }) ==
        "the program of the bigram with notes declares the inputs [ids: token ids i32 (31)]" + has);
  CHECK(problem([](Builder& b, const ModelConfig&) {
          b.input("ids", InputRole::token_ids, DType::i32, {32});
          b.input("hints", InputRole::features, DType::f32, {32, 4});
          b.input("targets", InputRole::labels, DType::i32, {32});
        }) ==
        "the program of the bigram with notes declares the inputs [ids: token ids i32 (32); "
        "hints: features f32 (32, 4); targets: labels i32 (32)]" +
            has);
}

TEST_CASE(
    "it trains with the same bits at every stage, in a pipeline, with recompute and offload") {
  const auto comm = make_communicator();
  Communicator& world = *comm;
  const TempDir drive;
  const RandomDataset data(11, 0.1);
  constexpr int kSteps = 3;
  const std::vector<std::function<void(Job&)>> changes{
      [](Job& j) { j.zero_stage = 1; },
      [](Job& j) { j.zero_stage = 2; },
      [](Job& j) {
        j.zero_stage = 3;
        j.gather = {.param_persistence = 0, .max_reuse_distance = 0};
      },
      [](Job& j) {
        j.recompute = {RecomputeMode::interval, 1};
      },
      [](Job& j) { j.recompute.mode = RecomputeMode::selective; },
      [](Job& j) { j.loss_chunks = 2; },
      [](Job& j) { j.offload.activations = OffloadTo::cpu; },
      [](Job& j) {
        j.zero_stage = 3;
        j.offload.optimizer = j.offload.parameters = OffloadTo::cpu;
        j.offload.optimizer_on = UpdateOn::host;
      },
      [&drive](Job& j) {
        j.zero_stage = 3;
        j.offload.optimizer = j.offload.parameters = j.offload.activations = OffloadTo::nvme;
        j.offload.optimizer_on = UpdateOn::host;
        j.offload.nvme_paths = {drive.path()};
      },
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = checked(R"("depth": 3, "width": 10, "length": 5, "notes": 3, "vocab_size": 11)", "",
                      world.size())
                  .job;
    job.batch = {4 * world.size(), 2, 2};
    job.device = DeviceChoice::cpu;
    job.steps = kSteps;
    job.dtype = job.wire_dtype = dtype;
    const RunResult expected = run_steps(job, data, world, kSteps);
    CHECK(expected.norm.back() > 0);
    for (const auto& change : changes) {
      Job changed = job;
      change(changed);
      INFO(describe(changed));
      CHECK(difference(expected, run_steps(changed, data, world, kSteps), world) == "");
    }
    if (world.size() != 2) continue;
    // One data-parallel rank, whose stages compute what one rank alone does. The second stage reads the notes.
    Job whole = job;
    whole.pipeline.stages = 2;
    whole.batch = {4, 2, 2};
    SelfComm self;
    Job alone = whole;
    alone.pipeline = {};
    alone.ranks = 1;
    RunResult by_one = run_steps(alone, data, self, kSteps);
    if (world.rank() != 0) by_one.weights.clear();
    for (const auto& change : changes) {
      Job changed = whole;
      change(changed);
      INFO(describe(changed));
      CHECK(difference(by_one, run_steps(changed, data, world, kSteps), world) == "");
    }
  }
}

TEST_CASE("its embedding is alone in its layer, and sparse gradients have the same bits") {
  const auto comm = make_communicator();
  Job job = checked(R"("width": 10, "length": 5, "vocab_size": 400)", "", comm->size()).job;
  job.batch = {4 * comm->size(), 2, 2};
  job.device = DeviceChoice::cpu;
  job.steps = 3;
  const RandomDataset data(400);
  for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
    job.reduce = reduce;
    job.sparse_gradients = false;
    const RunResult whole = run_steps(job, data, *comm, 3);
    job.sparse_gradients = true;
    const RunResult rows = run_steps(job, data, *comm, 3);
    CHECK(difference(whole, rows, *comm) == "");
    CHECK(rows.sent_per_step == rows.planned_to_send);
    if (comm->size() > 1) CHECK(rows.sent_per_step < whole.sent_per_step);
  }
}

TEST_CASE("its features count: others give another loss") {
  // A dataset whose features are all 0.
  class Blank : public RandomDataset {
   public:
    Blank() : RandomDataset(11, 0.1) {}
    void read(Split split, int64_t first, int64_t count,
              std::span<const InputTensor> inputs) const override {
      RandomDataset::read(split, first, count, inputs);
      for (const InputTensor& input : inputs)
        if (input.role == InputRole::features)
          std::fill_n(input.tensor.as<float>(), input.tensor.elements(), 0.0f);
    }
  };
  const auto comm = make_communicator();
  Job job = checked(R"("width": 10, "length": 5, "vocab_size": 11)", "", comm->size()).job;
  job.batch = {2 * comm->size(), 2, 1};
  job.device = DeviceChoice::cpu;
  CHECK(run_steps(job, RandomDataset(11, 0.1), *comm, 1).loss !=
        run_steps(job, Blank(), *comm, 1).loss);
}

}  // namespace dstrain
