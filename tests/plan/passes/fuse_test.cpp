// Gelu joins the products beside it where the library says that it has a kernel for both.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "runtime/ir/builder/builder.h"
#include "runtime/ir/product.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/plan.h"
#include "tests/plan/plans.h"
#include "tests/support/fake_library.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job gpt2(bool gelu, RecomputeConfig recompute = {}) {
  Job job;
  job.model = GptLite{.n_layer = 2,
                      .n_embd = 16,
                      .n_head = 2,
                      .block_size = 8,
                      .dropout = 0.1,
                      .gelu = gelu,
                      .vocab_size = 11};
  job.batch = {4, 2, 2};
  job.eval_interval = 1;
  job.recompute = recompute;
  return job;
}

RankPlan plan_of(const Job& job, bool fuses, bool packs = false) {
  return make_rank_plan(job, data_place(0, 1), fake_inputs(0, packs, fuses));
}

std::vector<const Instruction*> all_of(const Plan& plan, OpKind op, bool gelu_only = false) {
  std::vector<const Instruction*> found;
  for (const Instruction& i : plan.program.instructions)
    if (i.op == op &&
        (!gelu_only || attrs_as<ActivationAttrs>(i.attrs).activation == Activation::gelu))
      found.push_back(&i);
  return found;
}

TEST_CASE("both directions of gelu join the products of their layer") {
  const bool packs = GENERATE(false, true);
  const RankPlan rank = plan_of(gpt2(true), true, packs);  // planned means verified, too
  CHECK(all_of(rank.train, OpKind::activation).empty());
  CHECK(all_of(rank.train, OpKind::activation_grad).empty());
  const auto forward = all_of(rank.train, OpKind::linear, true);
  const auto backward = all_of(rank.train, OpKind::linear_input_grad, true);
  REQUIRE((forward.size() == 2 && backward.size() == 2));
  for (const Instruction* op : forward) CHECK(op->writes.size() == 2);
  // The last layer's slope is taken where that layer's product put what gelu saw.
  CHECK(backward[0]->reads[3] == forward[1]->writes[1]);
  CHECK(backward[1]->reads[3] == forward[0]->writes[1]);
  CHECK((backward[0]->reads[2] == kNone) == !packs);
  // Nobody takes a slope in validation.
  const auto validation = all_of(rank.validate, OpKind::linear, true);
  REQUIRE(validation.size() == 2);
  for (const Instruction* op : validation) CHECK(op->writes.size() == 1);
}

TEST_CASE("a library without such kernels, and relu, leave the plan as it is") {
  const RankPlan plain = plan_of(gpt2(true), false);
  CHECK(all_of(plain.train, OpKind::activation).size() == 2);
  CHECK(all_of(plain.train, OpKind::activation_grad).size() == 2);
  const RankPlan relu = plan_of(gpt2(false), true);
  CHECK(all_of(relu.train, OpKind::linear, true).empty());
  CHECK(all_of(relu.train, OpKind::activation_grad).size() == 2);
}

TEST_CASE("less is held where gelu is fused, and nothing of the work is lost") {
  const RankPlan fused = plan_of(gpt2(true), true), plain = plan_of(gpt2(true), false);
  CHECK(fused.memory.total() <= plain.memory.total());
  CHECK(fused.train.program.instructions.size() + 4 == plain.train.program.instructions.size());
}

TEST_CASE("recomputed layers fuse as the first pass does") {
  const RankPlan every = plan_of(gpt2(true, {RecomputeMode::interval, 1}), true);
  CHECK(all_of(every.train, OpKind::activation).empty());
  for (const Instruction* op : all_of(every.train, OpKind::linear_input_grad, true))
    CHECK(op->reads[3] != kNone);
  // Gelu alone, over what the product rounded, would give other bits than the two at once.
  const RankPlan selective = plan_of(gpt2(true, {RecomputeMode::selective, 0}), true);
  CHECK(all_of(selective.train, OpKind::activation).empty());
  CHECK(all_of(selective.train, OpKind::linear, true).size() == 2);
}

TEST_CASE("residuals join the products before them where there is no dropout") {
  Job job =
      gpt2(false);  // relu: gelu, which joins products too, cannot be computed again without them
  const RankPlan dropped = plan_of(job, true);
  CHECK(all_of(dropped.train, OpKind::add_dropout).size() == 4);
  CHECK(all_of(dropped.validate, OpKind::add_dropout).empty());  // nothing is dropped there
  job.model.set("dropout", 0);
  for (const bool packs : {false, true})
    for (const RecomputeConfig recompute :
         {RecomputeConfig{}, RecomputeConfig{RecomputeMode::interval, 1},
          RecomputeConfig{RecomputeMode::selective, 0}}) {
      job.recompute = recompute;
      CAPTURE(packs, static_cast<int>(recompute.mode));
      const RankPlan fused = plan_of(job, true, packs), plain = plan_of(job, false, packs);
      CHECK(all_of(plain.train, OpKind::add_dropout).size() >= 4);
      CHECK(all_of(fused.train, OpKind::add_dropout).empty());
      std::set<BufferId> sums;
      for (const Instruction* op : all_of(fused.train, OpKind::linear)) {
        if (op->reads.size() <= kResidualInput || op->reads[kResidualInput] == kNone) continue;
        CHECK(op->reads[kResidualInput] != op->writes[0]);
        CHECK((op->reads[3] != kNone) ==
              (packs && op->reads[1] != kNone &&
               fused.train.program.at(op->reads[1]).shape.elements() >= 1024));
        sums.insert(op->writes[0]);
      }
      CHECK(sums.size() >= 4);
      CHECK(fused.memory.total() <= plain.memory.total());
    }
}

TEST_CASE("a residual that is changed or read between stays an operation of its own") {
  Program program;
  Builder builder(program, {.dtype = DType::bf16, .batch = 2});
  builder.unit("a");
  const BufferId ids = builder.input("ids", InputRole::token_ids, DType::i32, {4});
  const BufferId table = builder.parameter("table", {11, 16}, Init::normal, 1);
  const BufferId weight = builder.parameter("w.weight", {16, 16}, Init::normal, 1);
  const BufferId x = builder.embed(ids, table, kNone, 4);
  const BufferId h = builder.linear(x, weight, kNone, Activation::none);
  const BufferId sum = builder.add_dropout(x, h, 4, 0);
  builder.output(builder.add_dropout(sum, h, 4, 0));  // h is read again
  fuse(program, FakeLibrary(0, false, true), 1);
  CHECK(std::ranges::count(program.instructions, OpKind::add_dropout, &Instruction::op) == 2);
}

}  // namespace
}  // namespace dstrain
