// The loss in pieces of rows: what the plan holds and issues. That numbers stay is
// tests/engine/stages/loss_chunks_test.cpp's.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

Job long_job(int64_t chunks) {
  Job job;
  job.model =
      GptLite{.n_layer = 2, .n_embd = 12, .n_head = 3, .block_size = 100, .vocab_size = 301};
  job.batch = {.train_batch = 12, .micro_batch = 2, .accumulation = 3};
  job.ranks = 2;
  job.eval_interval = 1;
  job.loss_chunks = chunks;
  return job;
}

// Says that a weight gradient's sums have parts of `part` rows.
class Parts : public FakeLibrary {
 public:
  explicit Parts(int64_t part) : part_(part) {}
  int64_t sum_rows_part(const KernelSpec& spec) const override {
    const int64_t rows = spec.in[0].shape[0], parts = (rows + part_ - 1) / part_;
    return (rows + parts - 1) / parts;
  }

 private:
  int64_t part_;
};

RankPlan plan_with(const Job& job, int64_t part) {
  return make_rank_plan(job, place_of(job, 0), {std::make_shared<Parts>(part), 1});
}

// Returns the rows of every piece.
std::vector<int64_t> pieces_of(const Plan& plan) {
  std::vector<int64_t> rows;
  for (const Instruction& op : plan.program.instructions)
    if (op.op == OpKind::cross_entropy) rows.push_back(plan.program.at(op.reads[0]).shape[0]);
  return rows;
}

using Rows = std::vector<int64_t>;

}  // namespace

TEST_CASE(
    "a head that is summed in the forward phase has its sum there, in front of the backward "
    "phase") {
  Job job = long_job(4);
  job.model =
      GptLite{.n_layer = 2, .n_embd = 16, .n_head = 4, .block_size = 100, .vocab_size = 301};
  job.ranks = 4;
  job.tensor_ranks = 2;  // the head's unit has no norm then, whose gradient comes later
  job.zero_stage = 3;
  job.reduce = ReduceMode::micro_batch;
  job.overlap_comm = true;
  job.quantize.gradients = true;
  const Program program = plan_of(job).train.program;
  std::vector<Phase> phases;
  for (const Instruction& op : program.instructions)
    if (op.when == When::every_micro) phases.push_back(op.phase);
  CHECK(std::ranges::is_sorted(phases));
}

TEST_CASE("logits of one piece at a time are held, and nothing else changes") {
  const RankPlan whole = plan_of(long_job(1)), four = plan_of(long_job(4));
  CHECK(pieces_of(whole.train) == Rows{200});
  CHECK(pieces_of(four.train) == Rows{50, 50, 50, 50});
  CHECK(pieces_of(four.validate) == Rows{50, 50, 50, 50});
  for (const Plan* plan : {&four.train, &four.validate}) {
    int64_t widest = 0;
    for (const Buffer& b : plan->program.buffers)
      if (b.shape.rank == 2 && b.shape[1] == 301) {
        bool used = false;
        for (const Instruction& op : plan->program.instructions)
          for (const auto* list : {&op.reads, &op.writes})
            for (const BufferId id : *list)
              used = used || (id != kNone && &plan->program.at(id) == &b);
        if (used) widest = std::max(widest, b.shape[0]);
      }
    CHECK(widest == 50);
  }
  const int64_t logits = 200 * 301 * 4;
  CHECK(four.memory.total() < whole.memory.total() - logits / 2);
  CHECK(wire_bytes(four.train) == wire_bytes(whole.train));
  CHECK(four.train.program.instructions.size() == whole.train.program.instructions.size() + 3 * 4);
}

TEST_CASE("only the last piece writes the loss, and later pieces add to the weight gradient") {
  for (const bool tied : {false, true}) {
    Job job = long_job(4);
    job.model.set("tied_head", tied);
    const Program program = plan_of(job).train.program;
    std::vector<const Instruction*> losses, grads;
    BufferId head = kNone;
    for (const Instruction& op : program.instructions) {
      if (op.op == OpKind::cross_entropy) losses.push_back(&op);
      if (op.op == OpKind::linear_weight_grad && op.phase == Phase::forward) grads.push_back(&op);
    }
    REQUIRE((losses.size() == 4 && grads.size() == 4));
    for (size_t i = 0; i < 4; ++i) {
      const bool last = i == 3;
      CHECK(attrs_as<CrossEntropyAttrs>(losses[i]->attrs).by_row == !last);
      CHECK((losses[i]->writes[0] == program.last_loss()) == last);
      CHECK((losses[i]->reads.size() == 3) == last);
      CHECK(grads[i]->accumulate == (i == 0 ? Accumulate::after_first_micro : Accumulate::always));
      if (i == 0) head = grads[i]->writes[0];
      CHECK(grads[i]->writes[0] == head);
    }
  }
}

TEST_CASE("ranks that have some classes each gather the sums of a piece's rows") {
  Job job = long_job(4);
  job.batch = {.train_batch = 6, .micro_batch = 2, .accumulation = 3};
  job.tensor_ranks = 2;
  job.model.set("n_head", int64_t{2});
  Job plain = job;
  plain.loss_chunks = 1;
  const RankPlan whole = plan_of(plain), four = plan_of(job);
  CHECK(wire_bytes(four.train) == wire_bytes(whole.train));
  CHECK(four.memory.total() < whole.memory.total());
  for (const Plan* plan : {&four.train, &four.validate}) {
    const Program& p = plan->program;
    std::vector<const Instruction*> losses, sums;
    for (const Instruction& op : p.instructions) {
      if (op.op == OpKind::cross_entropy_part) losses.push_back(&op);
      if (op.op == OpKind::class_sums) sums.push_back(&op);
    }
    REQUIRE((losses.size() == 4 && sums.size() == 4));
    for (size_t i = 0; i < 4; ++i) {
      const bool last = i == 3;
      CHECK(p.at(sums[i]->writes[0]).shape == Shape{1, 50, 3});
      CHECK(p.at(losses[i]->reads[2]).shape == Shape{2, 50, 3});
      CHECK(attrs_as<CrossEntropyAttrs>(losses[i]->attrs).by_row == !last);
      CHECK((losses[i]->writes[0] == p.last_loss()) == last);
      CHECK(losses[i]->reads.size() == (last ? 4 : 3));
    }
  }
}

TEST_CASE("pieces consist of whole parts of the weight gradient's sums") {
  Job job = long_job(4);
  CHECK(pieces_of(plan_with(job, 10).train) == Rows{50, 50, 50, 50});
  // Two parts at a time would leave 30 rows, which have parts of 15.
  CHECK(pieces_of(plan_with(job, 17).train) ==
        Rows{17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 13});
  CHECK(pieces_of(plan_with(job, 64).train) == Rows{50, 50, 50, 50});  // four parts of 50
  CHECK(pieces_of(plan_with(job, 70).train) == Rows{67, 67, 66});      // three of 67
  CHECK(pieces_of(plan_with(job, 200).train) == Rows{200});            // one: nothing to divide
  job.loss_chunks = 3;
  CHECK(pieces_of(plan_with(job, 200).train) == Rows{200});
  job.loss_chunks = 1000;
  CHECK(pieces_of(plan_with(job, 64).train) == Rows{50, 50, 50, 50});

  job.loss_chunks = 2;
  for (const int64_t part : {7, 9, 11, 13, 23, 31, 48, 64, 99, 101, 150}) {
    const Rows rows = pieces_of(plan_with(job, part).train);
    const int64_t whole = (200 + (200 + part - 1) / part - 1) / ((200 + part - 1) / part);
    const auto part_of = [&](int64_t n) {
      const int64_t parts = (n + part - 1) / part;
      return (n + parts - 1) / parts;
    };
    CAPTURE(part, whole, rows.front(), rows.back());
    for (const int64_t n : rows) CHECK((n <= whole || part_of(n) == whole));
    for (size_t i = 0; i + 1 < rows.size(); ++i) CHECK(rows[i] % whole == 0);
  }
}

TEST_CASE("a loss in pieces goes with every stage, recompute, offload and schedule") {
  for (const int stage : {0, 1, 2, 3})
    for (const RecomputeConfig recompute :
         {RecomputeConfig{}, RecomputeConfig{RecomputeMode::interval, 1},
          RecomputeConfig{RecomputeMode::selective, 0}})
      for (const bool tied : {false, true}) {
        Job job = long_job(3);
        job.model.set("tied_head", tied);
        job.zero_stage = stage;
        job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
        job.overlap_comm = true;
        job.recompute = recompute;
        CAPTURE(stage, static_cast<int>(recompute.mode), tied);
        CHECK(pieces_of(plan_of(job).train).size() == 3);  // planned means verified, too
      }
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
        PipelineSchedule::zb_h1, PipelineSchedule::zb_v}) {
    for (const bool tied : {false, true}) {
      Job job = long_job(3);
      job.model.set("n_layer", 4);
      job.model.set("tied_head", tied);
      job.batch = {.train_batch = 8, .micro_batch = 2, .accumulation = 4};
      job.pipeline.stages = 2;
      job.pipeline.schedule = schedule;
      job.pipeline.virtual_stages =
          schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v ? 2 : 1;
      CAPTURE(static_cast<int>(schedule), tied);
      size_t pieces = 0;
      for (const RankPlan& stage : make_stage_plans(job, 0, fake_inputs()))
        pieces += pieces_of(stage.train).size();
      CHECK(pieces == 3);
    }
  }
}
