// A model that the program does not know: this file is all of it (docs/models.md). mpirun starts this program.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/measure.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "runtime/config/load.h"
#include "runtime/config/resolved_config.h"
#include "runtime/core/error.h"
#include "runtime/ir/builder.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

void build_bigram(Builder& b, const ModelConfig& c) {
  const int64_t width = c.integer("width"), ids = c.integer("vocab_size");
  const int64_t length = b.options().seq_len > 0 ? b.options().seq_len : c.integer("length");
  b.unit("embedding");
  const BufferId table = b.vocabulary("embedding.weight", {ids, width}, Init::normal, 0.02f);
  BufferId x = b.embed(b.ids(length), table, kNone, length);
  for (int64_t i = 0; i < c.integer("depth"); ++i) {
    const std::string name = fmt::format("hidden.{}", i);
    b.unit(name);
    const BufferId w = b.parameter(name + ".weight", {width, width}, Init::normal, 0.02f);
    x = b.linear(x, w, b.parameter(name + ".bias", {width}, Init::zeros), Activation::relu);
  }
  b.unit("head");
  const BufferId head = b.vocabulary("head.weight", {ids, width}, Init::normal, 0.02f);
  const BufferId logits = b.linear(x, head, kNone, Activation::none);
  if (b.options().with_loss)
    b.cross_entropy(logits, b.targets(b.options().batch * length), ids);
  else
    b.output(logits);
}

const ModelFamily& bigram() {
  using models::size_key;
  static const ModelFamily family{
      .type = "bigram",
      .title = "bigram model",
      .keys = {{size_key("dstrain.model.depth", "1", "hidden layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "64", "of a hidden layer")},
               {size_key("dstrain.model.length", "32", "tokens of a sample")},
               {size_key("dstrain.model.vocab_size", "", "unset: the data's")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "vocab_size"},
                 {"targets", InputRole::labels, DType::i32, {"length"}, "vocab_size"}},
      .layers_key = "depth",
      .width_key = "width",
      .build = build_bigram,
      .measure = measure_model};
  return family;
}

// One whose loss is not computed in pieces: the slope of relu follows from the logits.
const ModelFamily& blunt() {
  static const ModelFamily family = [] {
    ModelFamily f = bigram();
    f.type = "blunt";
    f.title = "blunt model";
    f.build = [](Builder& b, const ModelConfig& c) {
      const int64_t width = c.integer("width"), length = c.integer("length");
      b.unit("all");
      const BufferId table =
          b.vocabulary("table", {c.integer("vocab_size"), width}, Init::normal, 0.02f);
      const BufferId x = b.embed(b.ids(length), table, kNone, length);
      const BufferId logits = b.linear(x, table, kNone, Activation::relu);
      b.cross_entropy(logits, b.targets(b.options().batch * length), c.integer("vocab_size"));
    };
    return f;
  }();
  return family;
}

const ModelRegistry& registry() {
  static const ModelRegistry models({model_registry().families().front(), &bigram(), &blunt()});
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
  CHECK(&model.family() == &bigram());
  CHECK(model.layers() == 3);
  CHECK(model.width() == 64);
  CHECK(model.context() == 32);
  CHECK(model.vocabulary() == 11);
  CHECK(job_from_resolved(resolved_config_json(loaded), registry()) == loaded.job);
  CHECK(message_on(checked(R"("depth": 0)"), "dstrain.model.depth") ==
        "expected an integer from 1 to 2048, found 0");
  CHECK(message_on(checked(R"("n_embd": 8)"), "dstrain.model.n_embd") ==
        "belongs to gptlite, not to bigram");
  CHECK(message_on(checked(R"("dept": 2)"), "dstrain.model.dept") ==
        "unknown key (did you mean dstrain.model.depth?)");
  CHECK(message_on(checked("", R"("pipeline": {"stages": 4},)", 4), "pipeline.stages") ==
        "4 stages are more than the 3 layers of the model, embedding and head included");
}

TEST_CASE("its sizes are those of its program") {
  const ModelMeasures m =
      checked(R"("depth": 7, "width": 10, "vocab_size": 11)").job.model.measures();
  CHECK(m.layers == 9);
  CHECK(m.parameters == 2 * 11 * 10 + 7 * (10 * 10 + 10));
  CHECK(m.matrix_elements == 2 * 11 * 10 + 7 * 10 * 10);
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

TEST_CASE(
    "it trains with the same bits at every stage, in a pipeline, with recompute and offload") {
  const auto comm = make_communicator();
  Communicator& world = *comm;
  const RandomDataset data(11, 0.1);
  constexpr int kSteps = 3;
  Job job =
      checked(R"("depth": 3, "width": 10, "length": 5, "vocab_size": 11)", "", world.size()).job;
  job.batch = {4 * world.size(), 2, 2};
  job.device = "cpu";
  job.steps = kSteps;
  const RunResult expected = run_steps(job, data, world, kSteps);
  CHECK(expected.norm.back() > 0);
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
      [](Job& j) { j.loss_chunks = 2; },
      [](Job& j) {
        j.zero_stage = 3;
        j.offload.optimizer = j.offload.parameters = OffloadTo::cpu;
        j.offload.optimizer_on = UpdateOn::host;
      },
  };
  for (const auto& change : changes) {
    Job changed = job;
    change(changed);
    INFO(describe(changed));
    CHECK(difference(expected, run_steps(changed, data, world, kSteps), world) == "");
  }
  if (world.size() == 2) {
    // One data-parallel rank, whose stages compute what one rank alone does.
    Job whole = job;
    whole.pipeline.stages = 2;
    whole.batch = {4, 2, 2};
    SelfComm self;
    Job alone = whole;
    alone.pipeline = {};
    alone.ranks = 1;
    const RunResult by_one = run_steps(alone, data, self, kSteps);
    CHECK(run_steps(whole, data, world, kSteps).loss == by_one.loss);
  }
}

}  // namespace dstrain
