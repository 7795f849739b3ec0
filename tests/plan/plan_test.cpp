#include "runtime/plan/plan.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/core/error.h"
#include "runtime/plan/print.h"
#include "runtime/plan/text_table.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job small_job() {
  Job job;
  job.model = {.n_layer = 2, .n_embd = 12, .n_head = 3, .block_size = 7, .vocab_size = 11};
  job.batch = {.train_batch = 12, .micro_batch = 2, .accumulation = 3};
  job.ranks = 2;
  return job;
}

size_t count_ops(const Plan& plan, OpKind kind) {
  size_t n = 0;
  for (const Instruction& op : plan.program.instructions) n += op.op == kind;
  return n;
}

}  // namespace

TEST_CASE("GPT-lite with 65 characters and the defaults has 86.7 M parameters") {
  Job job;
  job.model.vocab_size = 65;
  job.batch = {256, 1, 32};
  const RankPlan rank = make_rank_plan(job, {7, 8}, fake_inputs(0, false, false, 2));
  int64_t total = 0;
  for (const Parameter& p : rank.train.program.parameters) total += p.shape.elements();
  CHECK(total == 86'701'056);
  CHECK(rank.train.program.units[1].elements == 7'085'568);
  CHECK(rank.memory.at_peak[0] == 4 * total);
  CHECK(rank.memory.at_peak[1] == 4 * total);
  CHECK(rank.memory.at_peak[2] == 8 * total);
}

TEST_CASE("the backward pass of a benchmark layer follows from its rule") {
  Job job;
  job.model = {
      .kind = ModelKind::benchmark, .n_layer = 2, .in_size = 3, .hidden_size = 5, .out_size = 4};
  job.batch = {2, 2, 1};
  job.weight_decay_exclude = {"*.bias"};
  const Plan plan = train_plan(job);
  CHECK(op_names(plan, "layers.1") ==
        std::vector<std::string>{"linear", "cross_entropy", "activation_grad", "linear_input_grad",
                                 "linear_weight_grad", "sum_rows", "adam", "adam"});
  // The samples need no gradient, so the first layer has no input gradient.
  CHECK(op_names(plan, "layers.0") == std::vector<std::string>{"linear", "activation_grad",
                                                               "linear_weight_grad", "sum_rows",
                                                               "adam", "adam"});
}

TEST_CASE("a tied head adds to the embedding's gradient and is one parameter") {
  Job job = small_job();
  job.model.tied_head = true;
  const Plan plan = train_plan(job);
  for (const Parameter& p : plan.program.parameters) CHECK(p.name != "lm_head.weight");
  std::vector<Accumulate> modes;
  const BufferId gradient = plan.program.parameters[0].gradient;
  for (const Instruction& op : plan.program.instructions)
    if (!op.writes.empty() && op.writes[0] == gradient) modes.push_back(op.accumulate);
  CHECK(modes == std::vector{Accumulate::after_first_micro, Accumulate::always});
}

TEST_CASE("16-bit runs keep 2 bytes of parameters, 4 of gradients, 12 of optimizer state") {
  Job job = small_job();
  job.dtype = job.wire_dtype = DType::bf16;
  const RankPlan rank = make_rank_plan(job, {0, 2}, fake_inputs());
  int64_t padded = 0;
  for (const Unit& u : rank.train.program.units) padded += u.elements;
  CHECK(rank.memory.at_peak[0] == 2 * padded);
  CHECK(rank.memory.at_peak[1] == 4 * padded);
  CHECK(rank.memory.at_peak[2] == 12 * padded);
}

TEST_CASE("memory classes add up to what is reserved, for every shape of job") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const ReduceMode mode : {ReduceMode::boundary, ReduceMode::micro_batch})
      for (const int ranks : {1, 2, 3, 4})
        for (const int64_t eval : {0, 5}) {
          Job job = small_job();
          job.dtype = job.wire_dtype = dtype;
          job.reduce = mode;
          job.ranks = ranks;
          job.eval_interval = eval;
          std::vector<RankPlan> all;
          for (int r = 0; r < ranks; ++r)
            all.push_back(make_rank_plan(job, {r, ranks}, fake_inputs(300, true)));
          std::vector<const Plan*> plans;
          for (const RankPlan& rank : all) {
            int64_t sum = 0;
            for (int64_t bytes : rank.memory.at_peak) sum += bytes;
            CHECK(sum == rank.memory.total());
            plans.push_back(&rank.train);
          }
          verify_ranks(plans);
        }
}

TEST_CASE("ranks add once per step at the boundary and once per micro-batch otherwise") {
  Job job = small_job();
  const auto reduces = [&] {
    const Plan plan = train_plan(job, {1, 2});
    size_t n = 0;
    for (const Issue& i : plan.order)
      n += plan.program.instructions[static_cast<size_t>(i.instruction)].op == OpKind::all_reduce;
    return n;
  };
  const size_t units = 4;  // embedding, two blocks, head
  CHECK(reduces() == units);
  job.reduce = ReduceMode::micro_batch;
  CHECK(reduces() == 3 * units);
}

TEST_CASE("one rank rounds its gradients to a 16-bit wire although it sends nothing") {
  Job job = small_job();
  CHECK(count_ops(train_plan(job), OpKind::round_wire) == 0);
  job.wire_dtype = DType::bf16;
  CHECK(count_ops(train_plan(job), OpKind::round_wire) == 4);
}

TEST_CASE("wire bytes are the ring's: 2 (N-1)/N of the gradients in the wire dtype") {
  Job job;
  job.model.vocab_size = 65;
  job.batch = {256, 1, 32};
  const RankPlan f32 = make_rank_plan(job, {0, 8}, fake_inputs());
  CHECK(wire_bytes(f32.train) == 2 * 7 * 4 * int64_t{86'701'056} / 8);
  job.wire_dtype = job.dtype = DType::bf16;
  CHECK(wire_bytes(make_rank_plan(job, {0, 8}, fake_inputs()).train) == wire_bytes(f32.train) / 2);
}

TEST_CASE("every element of a unit is updated exactly once, decayed or not") {
  Job job = small_job();
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*.bias", "*ln*"};
  const Plan plan = train_plan(job);
  std::map<BufferId, int64_t> updated;
  std::set<float> decays;
  for (const Instruction& op : plan.program.instructions) {
    if (op.op != OpKind::adam) continue;
    updated[plan.program.root(op.writes[0])] += plan.program.at(op.writes[0]).shape.elements();
    decays.insert(op.attrs.weight_decay);
  }
  CHECK(updated.size() == plan.program.units.size());
  for (const auto& [root, elements] : updated)
    CHECK(elements == plan.program.at(root).shape.elements());
  CHECK(decays == std::set<float>{0.0f, 0.1f});
}

TEST_CASE("a product that gains from it gets its weight packed once per step") {
  const Plan plan = make_rank_plan(small_job(), {0, 1}, fake_inputs(0, true)).train;
  // fc and proj (48x12) are too small; nothing but attention's qkv (36x12) and them exist per block
  CHECK(count_ops(plan, OpKind::pack_weight) == 0);
  Job job = small_job();
  job.model.n_embd = 24;
  const Plan bigger = make_rank_plan(job, {0, 1}, fake_inputs(0, true)).train;
  CHECK(count_ops(bigger, OpKind::pack_weight) ==
        2 * 2 * 3);  // blocks x directions x (qkv, fc, proj)
  for (const Instruction& op : bigger.program.instructions)
    if (op.op == OpKind::pack_weight) CHECK(op.when == When::step_begin);
}

TEST_CASE("verify finds bytes that are reused too early") {
  Plan plan = train_plan(small_job());
  verify(plan);
  // The saved attention output of block 0 moves onto a buffer of block 1.
  const BufferId saved = plan.program.find("blocks.0.att");
  const BufferId other = plan.program.find("blocks.1.qkv");
  REQUIRE(saved != kNone);
  REQUIRE(other != kNone);
  plan.address[static_cast<size_t>(saved)] = plan.address[static_cast<size_t>(other)];
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("blocks.0.att") && Catch::Contains("reused"));
}

TEST_CASE("verify finds a read before its write") {
  Plan plan = train_plan(small_job());
  auto& order = plan.order;
  const auto is = [&](OpKind kind) {
    return [&, kind](const Issue& i) {
      return plan.program.instructions[static_cast<size_t>(i.instruction)].op == kind;
    };
  };
  order.erase(std::find_if(order.begin(), order.end(), is(OpKind::layer_norm)));
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("linear of blocks.0") && Catch::Contains("ln1"));
}

TEST_CASE("verify finds a gradient that is added to what the last step left") {
  Plan plan = train_plan(small_job());
  verify(plan);
  for (Instruction& op : plan.program.instructions)
    if (op.op == OpKind::linear_weight_grad && op.accumulate == Accumulate::after_first_micro) {
      op.accumulate = Accumulate::always;
      break;
    }
  CHECK_THROWS_WITH(verify(plan), Catch::Contains("linear_weight_grad") &&
                                      Catch::Contains("before it is written"));
}

TEST_CASE("verify finds ranks that disagree about a collective") {
  const Plan a = train_plan(small_job(), {0, 2});
  Plan b = train_plan(small_job(), {1, 2});
  verify_ranks({&a, &b});
  std::erase_if(b.order, [&](const Issue& i) {
    const Instruction& op = b.program.instructions[static_cast<size_t>(i.instruction)];
    return op.op == OpKind::all_reduce && b.program.groups[static_cast<size_t>(op.group)] == "head";
  });
  CHECK_THROWS_WITH(verify_ranks({&a, &b}), Catch::Contains("rank 1 has"));
}

TEST_CASE("the columns of the printed plan stand under each other, however long the names are") {
  Job job = small_job();
  job.model.n_layer = 101;
  const std::string text = plan_to_text(make_rank_plan(job, {0, 2}, fake_inputs(64)), "t");
  std::istringstream lines(text.substr(text.find("\nqueue ") + 1));
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> titles = {"when", "instruction", "group", "reads", "writes"};
  std::vector<size_t> columns;
  for (const std::string& title : titles) columns.push_back(line.find(" " + title + " ") + 1);
  const size_t width = line.size();
  int rows = 0;
  for (; std::getline(lines, line) && !line.empty(); ++rows) {
    CAPTURE(line);
    REQUIRE(line.size() <= width);
    for (const size_t column : columns) CHECK(line.substr(column - 2, 2) == "  ");
  }
  CHECK(rows > 1000);
}

TEST_CASE("text_table: columns are as wide as their longest cell") {
  CHECK(text_table({{"a", "bb", "1"}, {"ccc", "d", "22"}, {"", "", ""}}, 1) ==
        "a    bb   1\nccc  d   22\n\n");
  CHECK(text_table({}, 1).empty());
}

TEST_CASE("the printed plan holds the table, and its JSON adds up") {
  const RankPlan rank = make_rank_plan(small_job(), {1, 2}, fake_inputs(64));
  const std::string text = plan_to_text(rank, "rank 1 of 2");
  CHECK_THAT(text, Catch::StartsWith("rank 1 of 2 | f32 | 3 micro-batches"));
  CHECK_THAT(text, Catch::Contains("attention_grad") && Catch::Contains("finish_gradients"));
  const auto json = nlohmann::json::parse(plan_to_json(rank));
  CHECK(json["ranks"] == 2);
  CHECK(json["rank"] == 1);
  CHECK(json["instructions"].size() == rank.train.order.size());
  int64_t sum = 0;
  for (const auto& [name, bytes] : json["memory"].items())
    if (name != "total") sum += bytes.get<int64_t>();
  CHECK(sum == json["memory"]["total"]);
}
