// Frozen parameters: what a plan has of them, and what it has not.
#include <catch2/catch.hpp>
#include <set>

#include "runtime/core/error.h"
#include "runtime/plan/divide.h"
#include "tests/plan/stage_plans.h"
#include "tests/support/mixed_model.h"

using namespace dstrain;
using Catch::Contains;

namespace {

Job mixed_job(int stage, int ranks = 2, MixedModel model = {}) {
  Job job = sharded_job(stage, ranks);
  model.buffers = model.two_losses = false;
  job.model = model;
  return job;
}

std::vector<std::string> names_of(std::span<const Unit> units) {
  std::vector<std::string> names;
  for (const Unit& unit : units) names.push_back(unit.name);
  return names;
}

}  // namespace

TEST_CASE("frozen parameters of a layer are a unit behind all that are trained") {
  const Program program = plan_of(mixed_job(0)).train.program;
  CHECK(names_of(program.trained_units()) ==
        std::vector<std::string>{"hidden.0", "hidden.1", "hidden.3", "head"});
  CHECK(names_of(std::span(program.units).subspan(4)) ==
        std::vector<std::string>{"embedding", "hidden.0:frozen", "hidden.2", "hidden.3:frozen",
                                 "head:frozen"});
  for (const Parameter& p : program.parameters) {
    const Unit& unit = program.units[static_cast<size_t>(p.unit)];
    CHECK(unit.frozen == p.frozen);
    CHECK(std::ranges::count(unit.parameters, p.index) == 1);
  }
  const Program trained = plan_of(mixed_job(0, 2, {.frozen = false})).train.program;
  CHECK(trained.trained_units().size() == trained.units.size());
}

TEST_CASE("frozen parameters have neither gradients nor optimizer state, at any stage") {
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(stage, name_of(dtype));
      Job job = mixed_job(stage);
      job.dtype = job.wire_dtype = dtype;
      const Program program = plan_of(job).train.program;
      int64_t trained = 0;
      for (const Unit& unit : program.units) {
        CHECK(program.find("params:" + unit.name) != kNone);
        for (const char* of : {"grads:", "exp_avg:", "exp_avg_sq:"})
          CHECK((program.find(of + unit.name) == kNone) == unit.frozen);
        CHECK((program.find("master:" + unit.name) != kNone) ==
              (dtype != DType::f32 && !unit.frozen));
        if (!unit.frozen) trained += unit.elements;
      }
      for (const Parameter& p : program.parameters) CHECK((p.gradient == kNone) == p.frozen);
      const int64_t of_element = 2 * 4 + (dtype == DType::f32 ? 0 : 4);
      CHECK(persistent_bytes(program, MemoryClass::optimizer) ==
            of_element * trained / (stage >= 1 ? 2 : 1));
      CHECK(persistent_bytes(program, MemoryClass::gradients) ==
            4 * trained / (stage >= 2 ? 2 : 1));
    }
}

TEST_CASE("the backward pass ends at the first layer that is trained") {
  const Plan plan = plan_of(mixed_job(0)).train;
  CHECK(count_ops(plan, OpKind::embed_token_grad) == 0);
  CHECK(count_ops(plan, OpKind::linear_weight_grad) == 2);  // hidden.1, head
  CHECK(count_ops(plan, OpKind::linear_input_grad) == 4);   // all but that of hidden.0
  CHECK(count_ops(plan, OpKind::sum_rows) == 4);  // hidden.0, hidden.1, hidden.3, the slope
  CHECK(count_ops(plan, OpKind::layer_norm_weight_grad) == 0);
  CHECK(count_ops(plan, OpKind::layer_norm_grad) == 0);
  CHECK(count_ops(plan, OpKind::layer_norm_input_grad) == 1);
  CHECK(op_names(plan, "embedding") == std::vector<std::string>{"linear", "embed", "add_dropout"});
}

TEST_CASE("what is not trained is not sent, and is gathered at stage 3") {
  for (const int stage : {0, 3}) {
    const Plan plan = plan_of(mixed_job(stage)).train;
    std::set<std::string> reduced, gathered;
    for (const Instruction& op : plan.program.instructions) {
      if (op.op == OpKind::all_reduce || op.op == OpKind::reduce_scatter)
        reduced.insert(plan.program.at(plan.program.root(op.reads[0])).name);
      if (op.op == OpKind::all_gather)
        gathered.insert(plan.program.at(plan.program.root(op.reads[0])).name);
    }
    CHECK(reduced.size() == 4);
    for (const std::string& name : reduced) CHECK_THAT(name, !Contains("frozen"));
    CHECK(gathered.size() == (stage == 3 ? 9 : 0));
  }
}

TEST_CASE("a layer that is frozen in part is gathered whole where a limit leaves room for less") {
  Job job = mixed_job(3);
  job.gather.max_live_elements = 1;
  const Plan plan = plan_of(job).train;
  // hidden.0 is used in the forward pass alone, with its weight and its bias at the same time.
  std::vector<std::string> of_first;
  for (const Instruction& op : plan.program.instructions)
    if (op.op == OpKind::all_gather && op.phase == Phase::forward &&
        group_of(plan, op) == "hidden.0")
      of_first.push_back(plan.program.at(plan.program.root(op.writes[0])).name);
  CHECK(of_first == std::vector<std::string>{"gathered:hidden.0:frozen", "gathered:hidden.0"});
}

TEST_CASE("stages of a pipeline may be frozen as a whole") {
  for (const bool recomputes : {false, true}) {
    Job job = mixed_job(0, 4);
    job.batch = {8, 2, 2};
    job.pipeline.stages = 2;
    job.pipeline.first_layers = {0, 1};
    if (recomputes) job.recompute = {RecomputeMode::interval, 1};
    const std::vector<Plan> plans = plans_of(job);
    verify_together(plans);
    CHECK(plans[0].program.trained_units().empty());
    CHECK(persistent_bytes(plans[0].program, MemoryClass::optimizer) == 0);
    CHECK(layers_text(plans[1].program.sublayers, runs_of(plans[1].program)) == "1 to 5");
    CHECK(count_ops(plans[0], OpKind::recv) + count_ops(plans[1], OpKind::send) == 0);
  }
}

TEST_CASE("a model without a parameter to train is refused") {
  static const ModelFamily family = mixed_over_tokens("frozen", [](Builder& b,
                                                                   const ModelConfig& c) {
    const int64_t ids = c.integer("vocab_size"), length = c.integer("length");
    b.unit("all");
    const BufferId table = b.vocabulary("table", {ids, ids}, Init::normal, 0.02f, Trainable::no);
    const BufferId logits =
        b.embed(b.input("ids", InputRole::token_ids, DType::i32, {length}), table, kNone, length);
    b.cross_entropy(logits, b.input("targets", InputRole::labels, DType::i32, {length}), ids);
  });
  Job job = mixed_job(0);
  job.model = ModelConfig(family);
  job.model.set("length", int64_t{5});
  job.model.set_vocabulary(11);
  CHECK_THROWS_WITH(plan_of(job), Contains("every parameter of the mixed model is frozen"));
}

TEST_CASE("a model's measures count what is frozen") {
  const ModelMeasures m =
      ModelConfig(MixedModel{.depth = 3, .buffers = false, .two_losses = false}).measures();
  CHECK(m.parameters == 2 * 11 * 10 + 10 * 3 + 3 * (10 * 10 + 10) + 3 * 10);
  CHECK(m.frozen == 11 * 10 + 10 * 3 + 10 * 10 + (10 * 10 + 10) + 2 * 10);
  CHECK(m.token_table->frozen);
}
