// How a forward pass is divided among the ranks of tensor and sequence groups.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/ir/ops/attention.h"
#include "runtime/plan/parallel/parallel.h"
#include "runtime/plan/proof/verify_ranks.h"
#include "tests/plan/plans.h"
#include "tests/support/decoders.h"
#include "tests/support/mixed_model.h"

using namespace dstrain;

namespace {

// Two micro-batches of 4 samples of 8 tokens, two blocks of 4 heads.
Job layers_job(int sequence, int tensor, int data = 1) {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 16, .n_head = 4, .block_size = 8, .vocab_size = 13};
  job.sequence_ranks = sequence;
  job.tensor_ranks = tensor;
  job.ranks = data * sequence * tensor;
  job.batch = {8 * data, 4, 2};
  return job;
}

// A Llama of 4 heads of queries and 2 of keys, whose MLP and vocabulary no 2 ranks divide evenly.
Job llama_job(int sequence, int tensor) {
  Job job = layers_job(sequence, tensor);
  job.model = decoder(
      "llama", {{"num_key_value_heads", int64_t{2}}, {"max_position_embeddings", int64_t{8}}});
  return job;
}

const Parameter& parameter(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.parameters, name, &Parameter::name);
  REQUIRE(found != program.parameters.end());
  return *found;
}

Shape held(const Program& program, std::string_view name) {
  return program.at(parameter(program, name).value).shape;
}

int64_t count(const Program& program, OpKind op, When when = When::every_micro) {
  return std::ranges::count_if(program.instructions,
                               [&](const Instruction& i) { return i.op == op && i.when == when; });
}

std::vector<const Instruction*> all_of(const Program& program, OpKind op) {
  std::vector<const Instruction*> list;
  for (const Instruction& i : program.instructions)
    if (i.op == op) list.push_back(&i);
  return list;
}

// A product, running sums of its rows, or along the samples of a micro-batch, and a head.
template <bool kRows>
void build_scan(Builder& b, const ModelConfig& c) {
  const int64_t width = c.integer("width"), ids = c.integer("vocab_size"),
                length = c.integer("length");
  b.unit("embedding");
  const BufferId table = b.vocabulary("embedding.weight", {ids, width}, Init::normal, 0.5f);
  BufferId x =
      b.embed(b.input("ids", InputRole::token_ids, DType::i32, {length}), table, kNone, length);
  b.layer("hidden", 0);
  x = b.linear(x, b.parameter("hidden.0.weight", {width, width}, Init::normal, 0.5f), kNone,
               Activation::none);
  x = b.scan(x, {.lines = kRows ? Lines{width, 1} : Lines{length, width}});
  b.unit("head");
  const BufferId head = b.vocabulary("head.weight", {ids, width}, Init::normal, 0.02f);
  const BufferId targets = b.input("targets", InputRole::labels, DType::i32, {length});
  b.cross_entropy(b.linear(x, head, kNone, Activation::none), targets, ids);
}

template <bool kRows>
ModelConfig scan_model() {
  static const ModelFamily family =
      mixed_over_tokens(kRows ? "rows" : "samples", build_scan<kRows>);
  ModelConfig model(family);
  model.set("depth", int64_t{1});
  model.set("vocab_size", int64_t{11});
  return model;
}

}  // namespace

TEST_CASE("running sums of rows are a rank's own, and others are refused") {
  for (const auto& [sequence, tensor] : {std::pair{1, 2}, {2, 1}, {2, 2}}) {
    CAPTURE(sequence, tensor);
    Job job = layers_job(sequence, tensor);
    job.model = scan_model<true>();
    CHECK_NOTHROW(make_stage_plans(job, 0, fake_inputs()));
    job.model = scan_model<false>();
    CHECK_THROWS_WITH(make_stage_plans(job, 0, fake_inputs()),
                      Catch::Contains("scan reads operands through views"));
  }
}

TEST_CASE("ranks of a group read an input whole, and gather nothing of it") {
  Job job = layers_job(1, 2);
  job.model = BenchmarkModel{.n_layer = 4, .in_size = 8, .hidden_size = 8, .out_size = 4};
  const RankPlan rank = make_stage_plans(job, 0, fake_inputs()).front();  // proves that both agree
  for (const Instruction* op : all_of(rank.train.program, OpKind::all_gather))
    CHECK_FALSE(rank.train.program.at(op->reads[0]).per_micro);
}

TEST_CASE("a model of one's own is divided, with features as inputs and computed biases") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  for (const auto& [sequence, tensor] : {std::pair{1, 2}, {2, 1}, {2, 2}}) {
    Job job = layers_job(sequence, tensor);
    job.model = MixedModel{};
    job.dtype = dtype;
    CAPTURE(sequence, tensor, name_of(dtype));
    CHECK_NOTHROW(make_stage_plans(job, 0, fake_inputs()));
  }
}

TEST_CASE("a vocabulary smaller than the tensor group is refused") {
  Job job = layers_job(1, 4);
  job.model = GptLite{.n_layer = 1, .n_embd = 16, .n_head = 4, .block_size = 8, .vocab_size = 3};
  CHECK_THROWS_WITH(plan_of(job), Catch::Contains("the model has 3 tokens or labels"));
  CHECK_THROWS_AS(plan_of(job), UserError);
}

TEST_CASE(
    "a tensor group divides the weights of two products, the first by rows, the second by "
    "columns") {
  const Program p = plan_of(layers_job(1, 2), 1).train.program;
  CHECK(held(p, "blocks.0.attn.qkv.weight") == Shape{24, 16});
  CHECK(parameter(p, "blocks.0.attn.qkv.weight").part.sections == 3);
  CHECK(parameter(p, "blocks.0.attn.qkv.weight").shape == Shape{48, 16});
  CHECK(held(p, "blocks.0.attn.out_proj.weight") == Shape{16, 8});
  CHECK(held(p, "blocks.0.mlp.fc.weight") == Shape{32, 16});
  CHECK(held(p, "blocks.0.mlp.fc.bias") == Shape{32});
  CHECK(held(p, "blocks.0.mlp.proj.weight") == Shape{16, 32});
  CHECK(parameter(p, "blocks.0.mlp.proj.bias").part.by == TensorPart::By::nothing);
  CHECK(held(p, "token_embedding_table.weight") == Shape{7, 16});
  CHECK(held(p, "lm_head.weight") == Shape{7, 16});
  CHECK(parameter(p, "lm_head.weight").part.part == 1);
}

TEST_CASE("of an adapter the matrix is divided that has the divided side of its product") {
  Job job = layers_job(1, 2);
  FineTuning tuning;
  tuning.lora = LoraConfig{.r = 3, .targets = {"qkv", "out_proj", "fc", "proj", "lm_head"}};
  job.model.set_fine_tuning(tuning);
  const Program p = plan_of(job, 1).train.program;
  const auto adapter = [&](const std::string& module, bool rows) {
    INFO(module);
    const TensorPart &a = parameter(p, module + ".lora_A.weight").part,
                     &b = parameter(p, module + ".lora_B.weight").part;
    CHECK(a.by == (rows ? TensorPart::By::nothing : TensorPart::By::columns));
    CHECK(b.by == (rows ? TensorPart::By::rows : TensorPart::By::nothing));
    if (rows) CHECK(b == parameter(p, module + ".weight").part);
  };
  adapter("blocks.0.attn.qkv", true);
  adapter("blocks.0.attn.out_proj", false);
  adapter("blocks.1.mlp.fc", true);
  adapter("blocks.1.mlp.proj", false);
  adapter("lm_head", true);
  CHECK(held(p, "blocks.0.attn.qkv.lora_B.weight") == Shape{24, 3});
  CHECK(held(p, "blocks.0.attn.out_proj.lora_A.weight") == Shape{3, 8});
  CHECK(held(p, "lm_head.lora_B.weight") == Shape{7, 3});
  for (const Unit& unit : p.units)
    for (const int index : unit.parameters) {
      const Parameter& one = p.parameters[static_cast<size_t>(index)];
      CHECK(unit.axes.has(Axis::tensor) == (one.part.by == TensorPart::By::nothing));
    }
}

TEST_CASE("widths that ranks do not divide evenly are padded") {
  const Program p = plan_of(llama_job(1, 2), 0).train.program;
  CHECK(held(p, "model.layers.0.mlp.gate_proj.weight") == Shape{11, 24});
  CHECK(held(p, "model.layers.0.mlp.down_proj.weight") == Shape{24, 11});
  CHECK(held(p, "model.layers.0.self_attn.q_proj.weight") == Shape{12, 24});
  CHECK(held(p, "model.layers.0.self_attn.k_proj.weight") == Shape{6, 24});
}

TEST_CASE(
    "a tensor group gathers rows in front of two products and scatters their sum behind them") {
  const Plan plan = plan_of(layers_job(1, 2), 0).train;
  const Program& p = plan.program;
  // The embedding; in front of attention and of the MLP of two blocks; the head and its loss; and the same backwards.
  CHECK(count(p, OpKind::reduce_scatter) == (1 + 4) + (4 + 1));
  CHECK(count(p, OpKind::all_gather) == (4 + 1 + 1) + (1 + 4));
  CHECK(count(p, OpKind::cross_entropy_part) == 1);
  CHECK(p.losses.front().replicated);
  const int64_t rows = 4 * 8, columns = 16, f32 = 4;
  const int64_t sent =
      10 * rows * columns * f32 / 2 + rows * 3 * f32 + 10 * rows * columns * f32 / 2;
  int64_t planned = 0;  // a micro-batch
  for (const Instruction& op : p.instructions)
    if (is_collective(op.op) && op.when == When::every_micro &&
        op.channel == channel_of(plan.place, Axis::tensor))
      planned += std::max(p.at(op.reads[0]).bytes(), p.at(op.writes[0]).bytes()) / 2;
  CHECK(planned == sent);
}

TEST_CASE("norms and dropout work on the rows of a rank") {
  const Program p = plan_of(layers_job(2, 2), 3).train.program;
  for (const Instruction* op : all_of(p, OpKind::layer_norm))
    CHECK(p.at(op->reads[0]).shape == Shape{8, 16});
  for (const Instruction* op : all_of(p, OpKind::add_dropout)) {
    const auto part = attrs_as<DropoutAttrs>(op->attrs).part;
    CHECK(part == RowsPart{24, 32});
  }
}

TEST_CASE("a sequence group deals out heads for attention") {
  for (const int rank : {0, 1, 2, 3}) {
    const Program p = plan_of(layers_job(2, 2), rank).train.program;
    for (const Instruction* op : all_of(p, OpKind::attention)) {
      const auto attrs = attrs_as<AttentionAttrs>(op->attrs);
      CHECK(attrs.heads == 1);
      CHECK(attrs.first_head == (rank % 2) * 2 + rank / 2);
      CHECK(p.at(op->writes[0]).shape == Shape{32, 4});
    }
    // Queries, keys and values in one message and the result in another, and the same backwards.
    CHECK(count(p, OpKind::all_to_all) == 2 * 2 * 2);
    CHECK(count(p, OpKind::split_columns) == 2 * 2);
  }
}

TEST_CASE(
    "rotations of packed documents read the documents of a rank's rows, attention those of all") {
  for (const auto& [sequence, tensor] : {std::pair{2, 1}, {2, 2}, {1, 2}}) {
    Job job = llama_job(sequence, tensor);
    job.data.packing = Packing::pack;
    CAPTURE(sequence, tensor);
    const Program p = plan_of(job, sequence * tensor - 1).train.program;
    const int64_t rows = 4 * 8 / sequence;
    for (const Instruction* op : all_of(p, OpKind::rotary)) {
      REQUIRE(op->reads.size() > 1);
      CHECK(p.at(op->reads[1]).shape.elements() == rows);
      CHECK(p.at(op->reads[1]).parent_offset == (sequence - 1) * rows);
      CHECK(attrs_as<RotaryAttrs>(op->attrs).part == RowsPart{(sequence - 1) * rows, 32});
    }
    for (const Instruction* op : all_of(p, OpKind::attention))
      CHECK(p.at(op->reads[ops::AttentionInputs(*op).documents()]).shape.elements() == 4 * 8);
  }
}

TEST_CASE("queries are divided where one head of keys, with a norm of its own, is not") {
  Job job = layers_job(1, 2);
  job.model = decoder(
      "qwen3", {{"num_key_value_heads", int64_t{1}}, {"max_position_embeddings", int64_t{8}}});
  const Program p = make_stage_plans(job, 0, fake_inputs()).back().train.program;
  for (const Instruction* op : all_of(p, OpKind::attention)) {
    const auto attrs = attrs_as<AttentionAttrs>(op->attrs);
    CHECK(attrs.heads == 2);
    CHECK(attrs.kv_heads == 1);
    CHECK(p.at(op->reads[0]).shape[-1] == 2 * p.at(op->reads[1]).shape[-1]);
  }
}

TEST_CASE("sequence ranks get copies of the heads of keys, where these are fewer") {
  Job job = llama_job(4, 1);
  const Program p = plan_of(job, 3).train.program;
  const auto copies_of = [](const Instruction* op) {
    return attrs_as<ColumnsAttrs>(op->attrs).copies;
  };
  std::vector<int64_t> copies;
  for (const Instruction* op : all_of(p, OpKind::split_columns))
    if (op->phase == Phase::forward) copies.push_back(copies_of(op));
  CHECK(std::ranges::count(copies, 1) == 3);
  CHECK(std::ranges::count(copies, 2) == 6);
  CHECK(attrs_as<AttentionAttrs>(all_of(p, OpKind::attention).front()->attrs).kv_heads == 1);
}

TEST_CASE("parameters that all tensor ranks have alike are units that these divide, too") {
  Job job = layers_job(1, 2, 2);
  job.zero_stage = 1;
  const Plan plan = plan_of(job, 3).train;
  bool any = false;
  for (const Unit& unit : plan.program.units) {
    const bool replicated = unit.name.ends_with(":replicated");
    any = any || replicated;
    CHECK(unit.axes == (replicated ? kStateAxes | Axis::tensor : kStateAxes));
    for (const int index : unit.parameters)
      CHECK((plan.program.parameters[static_cast<size_t>(index)].part.by ==
             TensorPart::By::nothing) == replicated);
    CHECK(owned_slice(unit, plan.place).size() == unit.elements / (replicated ? 4 : 2));
  }
  CHECK(any);
}

TEST_CASE("ranks that divide layers and samples plan the same collectives") {
  struct Axes3 {
    int sequence, tensor, data, stages;
  };
  for (const auto& [sequence, tensor, data, stages] :
       {Axes3{1, 2, 1, 1}, Axes3{1, 4, 1, 1}, Axes3{2, 1, 1, 1}, Axes3{4, 1, 1, 1},
        Axes3{2, 2, 1, 1}, Axes3{1, 2, 2, 1}, Axes3{2, 1, 2, 1}, Axes3{2, 2, 2, 1},
        Axes3{1, 2, 1, 2}, Axes3{2, 2, 1, 2}, Axes3{2, 2, 2, 2}})
    for (const int zero_stage : {0, 1, 2, 3}) {
      Job job = layers_job(sequence, tensor, data);
      job.pipeline.stages = stages;
      job.ranks *= stages;
      job.zero_stage = zero_stage;
      job.reduce = usual_reduce(zero_stage);
      job.overlap_comm = zero_stage % 2 == 0;
      job.eval_interval = 1;
      INFO("sequence " << sequence << ", tensor " << tensor << ", data " << data << ", stages "
                       << stages << ", stage " << zero_stage);
      std::vector<RankPlan> ranks;
      std::vector<const RankPlan*> list;
      for (int r = 0; r < job.ranks; ++r) ranks.push_back(plan_of(job, r));
      for (const RankPlan& rank : ranks) list.push_back(&rank);
      CHECK_NOTHROW(verify_ranks(list));
    }
}

TEST_CASE(
    "rows that are gathered again in the backward pass are not kept, and are sent once more") {
  Job job = layers_job(1, 2);
  job.model = GptLite{.n_layer = 4, .n_embd = 64, .n_head = 4, .block_size = 8, .vocab_size = 13};
  const RankPlan kept = plan_of(job, 1);
  job.gather_again = GatherAgain::on;
  const RankPlan again = plan_of(job, 1);
  // Once for each first product of a layer and of the head.
  const int64_t gathers = 2 * 4 + 1, rows = 4 * 8, columns = 64, f32 = 4;
  CHECK(count(again.train.program, OpKind::all_gather) ==
        count(kept.train.program, OpKind::all_gather) + gathers);
  CHECK(wire_bytes(again.train) == wire_bytes(kept.train) + 2 * gathers * rows * columns * f32 / 2);
  CHECK(again.memory.total() < kept.memory.total());
}
