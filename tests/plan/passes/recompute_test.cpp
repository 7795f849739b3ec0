// The recompute pass: what is cloned, where it stands, and what it saves. That the numbers of a run do
// not change is tests/engine/recompute_test.cpp's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/report/print.h"
#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

constexpr RecomputeConfig kSelective{RecomputeMode::selective, 0};

constexpr RecomputeConfig every(int64_t interval) {
  return {RecomputeMode::interval, interval};
}

Job gpt_job(RecomputeConfig recompute, int64_t layers = 3) {
  Job job;
  job.model =
      GptLite{.n_layer = layers, .n_embd = 24, .n_head = 3, .block_size = 16, .vocab_size = 11};
  job.batch = {.train_batch = 6, .micro_batch = 2, .accumulation = 3};
  job.recompute = recompute;
  return job;
}

Job benchmark_job(RecomputeConfig recompute, int64_t layers) {
  Job job = gpt_job(recompute);
  job.model = BenchmarkModel{.n_layer = layers, .in_size = 16, .hidden_size = 16, .out_size = 16};
  return job;
}

// The groups of clones in the order of the list.
std::vector<std::string> clone_groups(const Plan& plan) {
  std::vector<std::string> groups;
  for (const Instruction& op : plan.program.instructions)
    if (const std::string group = group_of(plan, op);
        group.starts_with("re:") && (groups.empty() || groups.back() != group))
      groups.push_back(group);
  return groups;
}

using Names = std::vector<std::string>;

// A model with a layer that is none of the numbered ones, and whose name ends in a digit.
void build_stem(Builder& b, const ModelConfig& c) {
  const int64_t width = c.width();
  b.unit("stem.1");
  BufferId x = b.input("samples", InputRole::features, DType::f32, {width});
  const auto product = [&](const std::string& layer) {
    const BufferId w = b.parameter(layer + ".weight", {width, width}, Init::normal, 0.02f);
    x = b.linear(x, w, kNone, Activation::gelu);
  };
  product("stem.1");
  for (int64_t i = 0; i < c.layers(); ++i) product(b.layer("layers", i));
  b.unit("head");
  const BufferId w = b.parameter("head.weight", {width, width}, Init::normal, 0.02f);
  b.cross_entropy(b.linear(x, w, kNone, Activation::none),
                  b.input("targets", InputRole::labels, DType::i32, {}));
}

const ModelFamily& stem() {
  static const ModelFamily family{
      .type = "stem",
      .title = "model with a stem",
      .keys = {{models::size_key("dstrain.model.depth", "3", "")},
               {models::size_key("dstrain.model.width", "16", "")}},
      .inputs = {{"samples", InputRole::features, DType::f32, {"width"}},
                 {"targets", InputRole::labels, DType::i32, {}}},
      .layers_key = "depth",
      .width_key = "width",
      .build = build_stem,
      .measure = measure_model};
  return family;
}

// Returns how many clones of an op a program has.
int clones_of(const Program& program, OpKind op) {
  return static_cast<int>(std::ranges::count_if(program.instructions, [&](const Instruction& i) {
    return i.op == op && program.group_name(i).starts_with("re:");
  }));
}

// The program's rules, but that norms may not be repeated.
const OpRule& norms_once(OpKind op) {
  static const OpRule once = [] {
    OpRule rule = rule_of(OpKind::layer_norm);
    rule.repeatable = false;
    return rule;
  }();
  return op == OpKind::layer_norm ? once : rule_of(op);
}

const Names kBlock = {"layer_norm",  "linear",     "attention", "linear",
                      "add_dropout", "layer_norm", "linear"};

}  // namespace

TEST_CASE("interval 1 computes a block again but for its last product, right before its backward") {
  const Plan plan = train_plan(gpt_job(every(1)));
  CHECK(clone_groups(plan) == Names{"re:blocks.1", "re:blocks.0"});
  for (const char* block : {"blocks.0", "blocks.1"}) {
    CHECK(op_names(plan, std::string("re:") + block) == kBlock);
    const auto& list = plan.program.instructions;
    const auto is_clone = [&](const Instruction& op) {
      return group_of(plan, op) == std::string("re:") + block;
    };
    const auto begin = std::find_if(list.begin(), list.end(), is_clone);
    const auto end = std::find_if_not(begin, list.end(), is_clone);
    CHECK(std::none_of(end, list.end(), is_clone));
    REQUIRE(end != list.end());
    CHECK(group_of(plan, *end) == block);
    CHECK(end->op == OpKind::dropout_grad);
  }
}

TEST_CASE("a recomputed block's backward reads clones, which last for a micro-batch") {
  const Plan plan = train_plan(gpt_job(every(1)));
  const auto& list = plan.program.instructions;
  const auto is_clone = [&](const Instruction& op) { return group_of(plan, op) == "re:blocks.0"; };
  std::set<BufferId> made_forward, clones;
  for (const Instruction& op : list) {
    if (is_clone(op)) clones.insert(op.writes.begin(), op.writes.end());
    if (group_of(plan, op) == "blocks.0" && op.op < OpKind::cross_entropy)
      made_forward.insert(op.writes.begin(), op.writes.end());
  }
  for (BufferId id : clones) {
    CHECK(plan.program.at(id).lifetime == Lifetime::micro);
    CHECK(plan.program.at(id).memory == MemoryClass::activations);
    CHECK_THAT(plan.program.at(id).name, Catch::StartsWith("re:blocks.0."));
    REQUIRE(plan.program.at(id).copy_of != kNone);
    CHECK(made_forward.contains(plan.program.at(id).copy_of));
  }
  for (auto op = std::find_if(list.begin(), list.end(), is_clone); op != list.end(); ++op)
    for (BufferId id : op->reads) CHECK(made_forward.count(id) == 0);
}

TEST_CASE("an interval cuts the layers into segments from the first one on") {
  const Plan plan = train_plan(gpt_job(every(2), 5));  // {0, 1}, {2, 3}, {4}
  CHECK(clone_groups(plan) == Names{"re:blocks.2", "re:blocks.3", "re:blocks.0", "re:blocks.1"});
  Names whole = kBlock;  // its result is the next block's input
  whole.insert(whole.end(), {"linear", "add_dropout"});
  CHECK(op_names(plan, "re:blocks.0") == whole);
  CHECK(op_names(plan, "re:blocks.1") == kBlock);
  // One segment of everything ends right where its backward begins.
  CHECK(clone_groups(train_plan(gpt_job(every(100)))).empty());
}

TEST_CASE("the last segment is computed again where the head makes the peak") {
  Job job = gpt_job(every(1));
  job.model.set("vocab_size", 5000);
  CHECK(clone_groups(train_plan(job)) == Names{"re:blocks.2", "re:blocks.1", "re:blocks.0"});
}

TEST_CASE("the benchmark model's layers keep what they hand on") {
  // With relu a layer's result is both the next one's input and all that its own gradient reads.
  CHECK(clone_groups(train_plan(benchmark_job(every(1), 4))).empty());
  const Plan pairs = train_plan(benchmark_job(every(2), 6));
  CHECK(clone_groups(pairs) == Names{"re:layers.2", "re:layers.0"});
  CHECK(op_names(pairs, "re:layers.0") == Names{"linear"});
  CHECK(clone_groups(train_plan(benchmark_job(kSelective, 6))).empty());
  Job narrow = benchmark_job(every(1), 4);
  narrow.dtype = DType::bf16;  // the samples' rounded copy
  CHECK(op_names(train_plan(narrow), "re:layers.0") == Names{"cast"});
}

TEST_CASE("selective computes norms and gelu again, each right before its reader") {
  Job job = gpt_job(kSelective);
  job.model.set("activation", "gelu");
  const Plan plan = train_plan(job);
  CHECK(clone_groups(plan) == Names{"re:head", "re:blocks.2", "re:blocks.1", "re:blocks.0"});
  for (const char* group : {"re:blocks.0", "re:blocks.1", "re:blocks.2"})
    CHECK(op_names(plan, group) == Names{"activation", "layer_norm", "layer_norm"});
  const auto& list = plan.program.instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!group_of(plan, list[i]).starts_with("re:")) continue;
    const std::vector<BufferId>& reads = list[i + 1].reads;
    CHECK(std::find(reads.begin(), reads.end(), list[i].writes[0]) != reads.end());
  }
  job.model.set("activation", "relu");
  CHECK(op_names(train_plan(job), "re:blocks.0") == Names{"layer_norm", "layer_norm"});
}

TEST_CASE(
    "of a deep model's activations an interval of 1 leaves its blocks' inputs and one block") {
  constexpr int64_t layers = 24;
  const auto activations = [](RecomputeConfig recompute) {
    Job job = gpt_job(recompute, layers);
    job.model.set("activation", "gelu");
    const RankPlan rank = make_rank_plan(job, data_place(0, 1), fake_inputs());
    constexpr double matrix = 2 * 16 * 24 * 4;  // R x C in f32
    return static_cast<double>(rank.memory.at_peak[static_cast<size_t>(MemoryClass::activations)]) /
           matrix;
  };
  // Per block: x, ln1, 3 qkv, att, x, ln2, 4 fc, 4 gelu, and the statistics.
  constexpr double inside = 16;
  const double all = activations({});
  CHECK(all > layers * inside);
  // The inputs; one block and the gradients that it has at once.
  CHECK(activations(every(1)) < layers + 2 * inside);
  CHECK(activations(every(4)) < layers / 4.0 + 5 * inside);
  // Two norms and gelu of 4 C less.
  CHECK(activations(kSelective) < all - (layers - 1) * 6);
}

TEST_CASE("clones share packed weights, and the plan shows them as groups of their own") {
  const auto plan_of = [](RecomputeConfig recompute) {
    return make_rank_plan(gpt_job(recompute), data_place(0, 1), fake_inputs(0, true));
  };
  const auto packs = [](const RankPlan& rank) {
    return std::ranges::count(rank.train.program.instructions, OpKind::pack_weight,
                              &Instruction::op);
  };
  CHECK(packs(plan_of({})) > 0);
  CHECK(packs(plan_of(every(1))) == packs(plan_of({})));
  CHECK_THAT(plan_to_text(plan_of(every(1)), "t"), Catch::Contains(" re:blocks.0 "));
  CHECK_THAT(plan_to_json(plan_of(every(1))), Catch::Contains("\"re:blocks.0\""));
}

TEST_CASE("plans with recompute are proven for every shape of job") {
  for (const RecomputeConfig recompute : {every(1), every(2), every(3), kSelective})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const ReduceMode mode : {ReduceMode::boundary, ReduceMode::micro_batch})
        for (const int ranks : {1, 3})
          for (const bool benchmark : {false, true}) {
            Job job = benchmark ? benchmark_job(recompute, 5) : gpt_job(recompute, 5);
            if (!benchmark) job.model.set("tied_head", true);
            job.dtype = job.wire_dtype = dtype;
            job.reduce = mode;
            job.ranks = ranks;
            CHECK_NOTHROW(make_rank_plan(job, data_place(0, ranks), fake_inputs(300, true)));
          }
}

TEST_CASE("segments are of layers that have a number, not of those whose name ends in one") {
  Job job = gpt_job(every(1));
  job.model = ModelConfig(stem());
  CHECK(clone_groups(train_plan(job)) == Names{"re:layers.2", "re:layers.1", "re:layers.0"});
  CHECK(job.model.measures().named_layers == Names{"stem.1", "head"});
  CHECK(job.model.measures().layers == 5);
}

TEST_CASE("what an op computes that may not be repeated, or that adds to its output, is kept") {
  Program program;
  Builder b(program, {.batch = 2});
  build_model(b, gpt_job({}).model);
  backward(program);
  for (const RecomputeConfig recompute_by : {kSelective, every(1)}) {
    const Job job = gpt_job(recompute_by);
    Program usual = program, once = program, adding = program;
    recompute(usual, job);
    CHECK(clones_of(usual, OpKind::layer_norm) > 0);
    recompute(once, job, norms_once);
    CHECK(clones_of(once, OpKind::layer_norm) == 0);
    CHECK(clones_of(once, OpKind::linear) == clones_of(usual, OpKind::linear));
    for (Instruction& op : adding.instructions)
      if (op.op == OpKind::layer_norm) op.accumulate = Accumulate::always;
    recompute(adding, job);
    CHECK(clones_of(adding, OpKind::layer_norm) == 0);
  }
}
