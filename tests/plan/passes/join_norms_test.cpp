// Norms join what is beside them where the library says that it has a kernel for both.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/plan/passes/passes.h"
#include "runtime/plan/plan.h"
#include "tests/plan/plans.h"
#include "tests/support/fake_library.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

Job gpt2(int ranks = 1) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{
      .n_layer = 2, .n_embd = 16, .n_head = 2, .block_size = 8, .dropout = 0.1, .vocab_size = 11};
  job.batch = {4 * ranks, 2, 2};
  job.eval_interval = 1;
  return job;
}

Plan plan_joining(const Job& job, bool joins) {
  const auto library = std::make_shared<FakeLibrary>(0, false, false, joins);
  return make_rank_plan(job, data_place(0, job.ranks), {library, 1}).train;
}

int64_t count(const Plan& plan, OpKind op) {
  return std::ranges::count(plan.program.instructions, op, &Instruction::op);
}

const Instruction& first_of(const Plan& plan, OpKind op) {
  return *std::ranges::find(plan.program.instructions, op, &Instruction::op);
}

TEST_CASE("residuals join the norms behind them, and the gradients of norms each other") {
  const Plan plain = plan_joining(gpt2(), false), joined = plan_joining(gpt2(), true);
  CHECK(count(plain, OpKind::add_layer_norm) + count(plain, OpKind::layer_norm_grad) == 0);
  // Two norms a layer and the last one; the first follows the embedding.
  CHECK(count(joined, OpKind::add_layer_norm) == 4);
  CHECK(count(joined, OpKind::layer_norm) == 1);
  CHECK(count(joined, OpKind::add_dropout) == 0);
  CHECK(count(joined, OpKind::layer_norm_grad) == 5);
  CHECK(count(joined, OpKind::layer_norm_input_grad) == 0);
  CHECK(count(joined, OpKind::layer_norm_weight_grad) == 0);
  CHECK(joined.order.size() < plain.order.size());

  const Instruction &add = first_of(plain, OpKind::add_dropout),
                    &norm = first_of(joined, OpKind::add_layer_norm);
  const auto& attrs = std::get<AddLayerNormAttrs>(norm.attrs);
  CHECK(attrs.add == std::get<DropoutAttrs>(add.attrs));
  CHECK(attrs.norm == std::get<LayerNormAttrs>(first_of(plain, OpKind::layer_norm).attrs));
  CHECK(first_of(joined, OpKind::layer_norm_grad).accumulate ==
        first_of(plain, OpKind::layer_norm_weight_grad).accumulate);
}

TEST_CASE("norms that are computed again, or gathered beside, join what still follows them") {
  for (const RecomputeConfig recompute :
       {RecomputeConfig{}, RecomputeConfig{RecomputeMode::interval, 1}})
    for (const int stage : {0, 3}) {
      CAPTURE(static_cast<int>(recompute.mode), stage);
      Job job = gpt2(2);
      job.recompute = recompute;
      job.zero_stage = stage;
      job.reduce = stage == 3 ? ReduceMode::micro_batch : ReduceMode::boundary;
      const Plan plain = plan_joining(job, false), joined = plan_joining(job, true);
      // Every op is there once, joined or not.
      for (const OpKind op : {OpKind::layer_norm, OpKind::add_dropout})
        CHECK(count(joined, op) + count(joined, OpKind::add_layer_norm) == count(plain, op));
      for (const OpKind op : {OpKind::layer_norm_input_grad, OpKind::layer_norm_weight_grad})
        CHECK(count(joined, op) + count(joined, OpKind::layer_norm_grad) == count(plain, op));
      CHECK(count(joined, OpKind::layer_norm_grad) == 5);
    }
}

TEST_CASE("instructions of different phases or operands stay two") {
  Program program;
  const FakeLibrary library(0, false, false, true);
  const auto buffer = [&](Shape shape) {
    return program.add_buffer({.name = "b", .shape = shape, .dtype = program.dtype});
  };
  const BufferId d_y = buffer({4, 8}), x = buffer({4, 8}), row = buffer({8}), mean = buffer({4}),
                 rstd = buffer({4}), d_x = buffer({4, 8}), other = buffer({4, 8});
  const Instruction input{.op = OpKind::layer_norm_input_grad,
                          .reads = {d_y, x, row, mean, rstd, kNone},
                          .writes = {d_x},
                          .phase = Phase::backward};
  const Instruction weight{.op = OpKind::layer_norm_weight_grad,
                           .reads = {d_y, x, mean, rstd},
                           .writes = {row, row},
                           .phase = Phase::backward};
  const auto left = [&](Instruction second) {
    program.instructions = {input, std::move(second)};
    join_norms(program, library, 1);
    return program.instructions.size();
  };
  CHECK(left(weight) == 1);
  Instruction later = weight;
  later.phase = Phase::weight_grad;
  CHECK(left(later) == 2);
  Instruction of_other = weight;
  of_other.reads[0] = other;
  CHECK(left(of_other) == 2);
}

}  // namespace
}  // namespace dstrain
