// Where a model is divided among the parts of a pipeline, and what a stage has of a layer that is cut.
#include "runtime/plan/divide.h"

#include <catch2/catch.hpp>
#include <set>

#include "runtime/plan/build_model.h"
#include "runtime/plan/passes/passes.h"
#include "tests/plan/stage_plans.h"

using namespace dstrain;

namespace {

using List = std::vector<int64_t>;

// Four blocks: sublayer 0 is the embedding, 1 and 2 are block 0, ..., 9 is the head.
Job pipeline_job(int stages, const std::string& partition) {
  Job job = sharded_job(0, stages);
  job.model.set("n_embd", 48);
  job.batch = {8, 2, 4};
  job.pipeline.stages = stages;
  job.pipeline.partition = partition;
  return job;
}

List division_of(const Job& job) {
  Program program;
  Builder builder(program, {.batch = job.batch.micro_batch});
  build_model(builder, job.model);
  backward(program);
  return divide_model(program, job, rates_of(job.device));
}

// The sublayers of gptlite that begin a layer, and their number at the end.
bool begins_layer(int64_t sublayer) {
  return sublayer == 0 || sublayer % 2 == 1;
}

std::vector<std::string> units_of(const Program& program) {
  std::vector<std::string> names;
  for (const Unit& unit : program.units) names.push_back(unit.name);
  return names;
}

// The names of the units that the parts of cut layers have, of all stages.
std::set<std::string> cut_units(const std::vector<Plan>& plans) {
  std::set<std::string> names;
  for (const Plan& plan : plans)
    for (const std::string& name : units_of(plan.program))
      if (name.ends_with(".attn") || name.ends_with(".mlp")) names.insert(name);
  return names;
}

}  // namespace

TEST_CASE("divide: methods that DeepSpeed has keep layers whole") {
  for (const char* method : {"uniform", "parameters", "type:blocks"})
    for (const int stages : {2, 3, 4})
      for (const int64_t first : division_of(pipeline_job(stages, method)))
        CHECK((begins_layer(first) || first == 10));
  Job job = pipeline_job(3, "list");
  job.pipeline.first_layers = {0, 2, 5};
  CHECK(division_of(job) == List{0, 3, 9, 10});
}

TEST_CASE("divide: memory and time cut layers, unless units are packed for their way") {
  for (const char* method : {"memory", "time"}) {
    Job job = pipeline_job(2, method);
    job.model.set("n_layer", 3);
    const List first = division_of(job);
    CHECK_FALSE(begins_layer(first[1]));
    job.quantize.weights = true;
    CHECK(begins_layer(division_of(job)[1]));
    job.quantize = {.gradients = true};
    CHECK(begins_layer(division_of(job)[1]));
    job.quantize = {};
    job.hook.kind = HookKind::batched_power_sgd;
    CHECK(begins_layer(division_of(job)[1]));
  }
}

TEST_CASE("divide: the text of layers names the sublayers of those that are not whole") {
  Program program;
  Builder builder(program, {});
  build_model(builder, pipeline_job(2, "memory").model);
  const auto text = [&](std::vector<SublayerRun> runs) {
    return layers_text(program.sublayers, runs);
  };
  CHECK(text({{0, 0}}) == "0");
  CHECK(text({{0, 2}}) == "0 to 1");
  CHECK(text({{0, 3}}) == "0 to 2.attn");
  CHECK(text({{4, 7}}) == "2.mlp to 4.attn");
  CHECK(text({{4, 4}}) == "2.mlp");
  CHECK(text({{3, 4}}) == "2");
  CHECK(text({{4, 6}, {8, 9}}) == "2.mlp to 3 and 4.mlp to 5");
}

TEST_CASE("divide: the stages of a layer that is cut have its sublayers' parameters alone") {
  Job job = pipeline_job(2, "memory");
  job.model.set("n_layer", 3);
  const std::vector<Plan> plans = plans_of(job);
  verify_together(plans);
  const std::set<std::string> cut = cut_units(plans);
  REQUIRE(cut.size() == 2);
  CHECK(units_of(plans[0].program).back().ends_with(".attn"));
  CHECK(units_of(plans[1].program).front().ends_with(".mlp"));
  std::set<int> parameters;
  for (const Plan& plan : plans)
    for (const Parameter& p : plan.program.parameters) {
      CHECK(parameters.insert(p.index).second);
      const std::string& unit = plan.program.units[static_cast<size_t>(p.unit)].name;
      const bool of_mlp =
          p.name.find(".mlp.") != std::string::npos || p.name.find(".ln2.") != std::string::npos;
      if (cut.contains(unit)) CHECK(unit.ends_with(of_mlp ? ".mlp" : ".attn"));
    }
  CHECK(parameters.size() == plans[0].program.model.size());
  // What crosses the cut is what crosses one between layers: a value of the residual stream and its gradient.
  const int64_t rows = job.batch.micro_batch * job.model.integer("block_size");
  for (const Plan& plan : plans)
    for (const Instruction& op : plan.program.instructions)
      for (const auto* list : {&op.reads, &op.writes})
        if (op.op == OpKind::send || op.op == OpKind::recv)
          for (const BufferId id : *list)
            CHECK(plan.program.at(id).shape == Shape{rows, job.model.integer("n_embd")});
}

TEST_CASE("divide: a cut layer is proved where kernels do two operations at once") {
  Job job = pipeline_job(2, "memory");
  job.model.set("n_layer", 3);
  job.model.set("activation", "gelu");
  job.dtype = job.wire_dtype = DType::bf16;
  for (const double dropout : {0.0, 0.1}) {
    job.model.set("dropout", dropout);
    const std::vector<RankPlan> stages = make_stage_plans(job, 0, fake_inputs(0, false, true));
    CHECK(units_of(stages[0].train.program).back() == "blocks.1.attn");
    CHECK(units_of(stages[1].train.program).front() == "blocks.1.mlp");
  }
}

TEST_CASE(
    "divide: plans of cut layers are proved, with any schedule, stage of ZeRO and recompute") {
  int cut = 0, on_one_stage = 0;
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
        PipelineSchedule::zb_h1, PipelineSchedule::zb_v})
    for (const int64_t blocks : {3, 5, 6})
      for (const RecomputeConfig& recompute : {RecomputeConfig{},
                                               {RecomputeMode::selective, 0},
                                               {RecomputeMode::interval, 1},
                                               {RecomputeMode::interval, 2}})
        for (const int zero_stage : {0, 3}) {
          Job job = pipeline_job(2, blocks == 3 ? "time" : "memory");
          job.model.set("n_layer", blocks);
          job.model.set("activation", blocks == 5 ? "gelu" : "relu");
          job.pipeline.schedule = schedule;
          if (schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v)
            job.pipeline.virtual_stages = 2;
          job.recompute = recompute;
          job.zero_stage = zero_stage;
          job.ranks = 4;
          job.batch = {16, 2, 4};
          job.offload.activations = blocks == 6 ? OffloadTo::cpu : OffloadTo::none;
          CAPTURE(static_cast<int>(schedule), blocks, recompute.interval, zero_stage);
          const std::vector<Plan> plans = plans_of(job);
          verify_together(plans);
          cut += !cut_units(plans).empty();
          for (const Plan& plan : plans) {
            const std::vector<std::string> names = units_of(plan.program);
            for (size_t i = 0; i + 1 < names.size(); ++i)
              on_one_stage += names[i].ends_with(".attn") && names[i + 1].ends_with(".mlp");
          }
        }
  CHECK(cut > 40);
  CHECK(on_one_stage > 0);
}
