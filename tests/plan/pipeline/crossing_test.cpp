// Models of which several values cross the cuts of a pipeline: what travels, and that all stages fit together.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/plan/waits.h"
#include "tests/plan/stage_plans.h"
#include "tests/support/general_layers.h"
#include "tests/support/sample.h"

namespace dstrain {
namespace crossing {
namespace {

// Layers hand on two tensors, x and memory. They read a bias that is computed from a parameter, a mask that follows from the
// batch, and draws, all of the first layer, and the head reads that layer's first result.
void build(Builder& b, const ModelConfig& c) {
  const Formula x = Formula::input(0), y = Formula::input(1), z = Formula::input(2),
                w = Formula::input(3), v = Formula::input(4);
  GeneralLayers layers(b, c.integer("length"));
  const int64_t width = c.integer("width"), ids = c.integer("vocab_size");
  const Shape rows = layers.rows(width), each_row = layers.rows(1);
  const auto whole = [&](BufferId id) { return layers.whole(id); };
  b.unit("inputs");
  const BufferId table = b.parameter("table", {ids, width}, Init::normal, 0.5f);
  const BufferId named = b.input("ids", InputRole::token_ids, DType::i32, {layers.tokens()});
  const BufferId first = b.take(table, layers.by_id(width, ids), {named});
  const BufferId bias = b.map(tangent(x), {width},
                              {whole(b.parameter("bias", {width}, Init::normal, 1))}, DType::f32);
  const BufferId notes =
      b.input("notes", InputRole::features, DType::f32, {layers.tokens(), int64_t{1}});
  const BufferId mask = b.map(less(0, x), each_row, {whole(notes)});
  const BufferId noise = b.uniform(rows, 0);
  BufferId now = first, memory = b.map(tangent(x), rows, {whole(first)});
  for (int64_t i = 0; i < c.integer("depth"); ++i) {
    const std::string name = b.layer("layers", i);
    const BufferId product =
        layers.product(now, b.parameter(name + ".w", {width, width}, Init::normal, 0.3f));
    now = b.map(x + y * z + 0.1f * w + 0.01f * v, rows,
                {whole(now), whole(product), layers.by_row(mask), GeneralLayers::by_column(bias),
                 whole(noise)});
    memory = b.map(tangent(x + y), rows, {whole(memory), whole(now)});
  }
  b.unit("head");
  const BufferId joined = b.map(x + y * z, rows, {whole(now), whole(memory), whole(first)});
  const BufferId said = layers.product(joined, b.parameter("head", {1, width}, Init::normal, 0.3f));
  if (!b.options().with_loss) return b.output(said);
  b.loss(b.reduce(Reduction::sum, (x - y) * (x - y), each_row, 1, {whole(said), whole(notes)},
                  DType::f32),
         LossWeight::samples);
}

const ModelFamily& family() {
  using models::size_key;
  static const ModelFamily of{
      .type = "crossing",
      .title = "crossing model",
      .keys = {{size_key("dstrain.model.depth", "6", "layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "10", "of a layer")},
               {size_key("dstrain.model.length", "5", "tokens of a sample")},
               {size_key("dstrain.model.notes", "1", "features of a token")},
               {size_key("dstrain.model.vocab_size", "7", "tokens")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "vocab_size"},
                 {"notes", InputRole::features, DType::f32, {"length", "notes"}}},
      .layers_key = "depth",
      .width_key = "width",
      .build = build,
      .measure = measure_model};
  return of;
}

Job crossing_job(int stages, int data_ranks = 1, int zero_stage = 0) {
  Job job = sharded_job(zero_stage, stages * data_ranks);
  job.model = ModelConfig(family());
  job.pipeline.stages = stages;
  job.batch = {8 * data_ranks, 2, 4};
  return job;
}

// Returns the names of what a stage sends in one micro-batch, by whether it is of the forward pass.
std::map<bool, std::multiset<std::string>> sent_by(const Plan& plan) {
  std::map<bool, std::multiset<std::string>> names{{false, {}}, {true, {}}};
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (op.op == OpKind::send && op.when == When::every_micro && issue.micro == 0)
      names[op.phase == Phase::forward].insert(plan.program.at(op.reads[0]).name);
  }
  return names;
}

TEST_CASE("what layers hand on and what several read travels once over each cut, and back") {
  for (const int stages : {2, 3, 4}) {
    const std::vector<Plan> plans = plans_of(crossing_job(stages));
    REQUIRE(plans.size() == static_cast<size_t>(stages));
    CHECK_NOTHROW(verify_together(plans));
    for (size_t s = 0; s < plans.size(); ++s) {
      const auto sent = sent_by(plans[s]);
      INFO("stage " << s << " of " << stages);
      // x, memory, the bias and the first result; and a gradient of each.
      CHECK(sent.at(true).size() == (s + 1 < plans.size() ? 4 : 0));
      CHECK(sent.at(false).size() == (s > 0 ? 4 : 0));
      const std::set<std::string> once(sent.at(true).begin(), sent.at(true).end());
      CHECK(once.size() == sent.at(true).size());
    }
    // The first result passes through each stage by its own name.
    const auto of_first = sent_by(plans.front()).at(true);
    for (size_t s = 1; s + 1 < plans.size(); ++s) {
      const auto sent = sent_by(plans[s]).at(true);
      CHECK(std::ranges::count_if(of_first, [&](const std::string& name) {
              return sent.contains(name);
            }) == 2);  // and the bias
    }
  }
}

TEST_CASE("what follows from the batch alone is computed by each stage that reads it") {
  const std::vector<Plan> whole = plans_of(crossing_job(1));
  CHECK(count_ops(whole[0], OpKind::uniform) == 1);
  for (const int stages : {2, 3}) {
    const std::vector<Plan> plans = plans_of(crossing_job(stages));
    for (const Plan& plan : plans) {
      const bool reads = std::ranges::any_of(
          plan.program.units, [](const Unit& unit) { return unit.name.starts_with("layers."); });
      CHECK(count_ops(plan, OpKind::uniform) == (reads ? 1 : 0));
    }
  }
}

TEST_CASE("stages fit together with any schedule, recompute, sharding and chunks") {
  Sample sample(2);
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
        PipelineSchedule::zb_h1, PipelineSchedule::zb_v})
    for (const int stages : {2, 3, 4})
      for (const int zero_stage : {0, 3})
        for (const int64_t interval : {0, 1, 2}) {
          if (!sample.takes()) continue;
          Job job = crossing_job(stages, 2, zero_stage);
          const bool in_chunks =
              schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v;
          if (in_chunks && stages == 4) job.model.set("depth", int64_t{10});
          job.pipeline.schedule = schedule;
          job.pipeline.virtual_stages = in_chunks ? 2 : 1;
          const auto micro_batches = static_cast<int64_t>(2 * stages);
          job.batch = {4 * micro_batches, 2, micro_batches};
          if (interval > 0) job.recompute = {RecomputeMode::interval, interval};
          INFO(stages << " stages, stage " << zero_stage << ", interval " << interval
                      << ", schedule " << static_cast<int>(schedule));
          const std::vector<Plan> plans = plans_of(job);  // which proves each
          CHECK_NOTHROW(verify_together(plans));
        }
}

}  // namespace
}  // namespace crossing
}  // namespace dstrain
