// The end of a step where a tensor group divides what an optimizer needs whole: matrices, and norms of parameters.
#include "runtime/plan/parallel/divided_matrix.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job layers_job(OptimizerKind optimizer, int data, int stage) {
  Job job;
  job.model = GptLite{.n_layer = 1, .n_embd = 16, .n_head = 4, .block_size = 8, .vocab_size = 13};
  job.tensor_ranks = 2;
  job.ranks = data * 2;
  job.batch = {4 * data, 4, 1};
  job.optimizer.kind = optimizer;
  job.zero_stage = stage;
  job.reduce = stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
  return job;
}

Parameter divided(Shape shape, TensorPart part) {
  Parameter p;
  p.name = "w";
  p.shape = shape;
  p.part = part;
  return p;
}

const Place kSecondOfTwo({1, 1, 1, 1, 1, 2}, 1);

}  // namespace

TEST_CASE("parts by rows follow one another in the whole matrix") {
  Program program;
  const Parameter p =
      divided({5, 4}, {.by = TensorPart::By::rows, .parts = 2, .part = 1, .sections = 1});
  const BufferId mine = program.add_buffer({.name = "mine", .shape = {3, 4}});
  DividedMatrix matrix(program, kSecondOfTwo, p, {.when = When::step_end});
  const BufferId whole = matrix.gather(mine);
  CHECK(program.at(whole).shape == Shape{6, 4});
  const BufferId picked = matrix.pick(whole);
  CHECK(program.root(picked) == whole);
  CHECK(program.at(picked).parent_offset == 12);
  CHECK(program.at(picked).shape == Shape{12});
  REQUIRE(program.instructions.size() == 1);
  CHECK(program.instructions[0].op == OpKind::all_gather);
  CHECK(program.instructions[0].when == When::step_end);
  CHECK(program.instructions[0].channel == channel_of(kSecondOfTwo, Axis::tensor));
}

TEST_CASE("parts by columns are joined row by row, and split again") {
  Program program;
  const Parameter p =
      divided({4, 5}, {.by = TensorPart::By::columns, .parts = 2, .part = 1, .sections = 1});
  const BufferId mine = program.add_buffer({.name = "mine", .shape = {4, 3}});
  DividedMatrix matrix(program, kSecondOfTwo, p, {.when = When::step_end});
  const BufferId whole = matrix.gather(mine);
  CHECK(program.at(whole).shape == Shape{4, 6});
  const BufferId picked = matrix.pick(whole);
  CHECK(program.at(picked).parent_offset == 12);
  CHECK(program.at(picked).shape == Shape{12});
  REQUIRE(program.instructions.size() == 3);
  CHECK(program.instructions[0].op == OpKind::all_gather);
  CHECK(program.instructions[1].op == OpKind::join_columns);
  CHECK(program.instructions[2].op == OpKind::split_columns);
}

TEST_CASE("a matrix that the ranks of the place do not divide is refused") {
  Program program;
  const Parameter whole = divided({4, 5}, {});
  CHECK_THROWS_AS(DividedMatrix(program, kSecondOfTwo, whole, {}), InternalError);
}

TEST_CASE("Muon transforms whole matrices, whose directions a tensor group gathers") {
  for (const int data : {1, 2})
    for (const int stage : {0, 1, 3}) {
      const Job job = layers_job(OptimizerKind::muon, data, stage);
      const Plan plan = plan_of(job, 1).train;
      const Program& p = plan.program;
      INFO(data << " data-parallel ranks, stage " << stage);
      int64_t gathered = 0, columns = 0;
      for (const Instruction& op : p.instructions) {
        if (op.op == OpKind::orthogonalize) {
          const Buffer& x = p.at(op.reads[0]);
          const std::string name = x.name.substr(x.name.find(':') + 1);
          const auto found = std::ranges::find(p.parameters, name, &Parameter::name);
          REQUIRE(found != p.parameters.end());
          CHECK(x.shape == found->shape);  // widths are divided evenly
        }
        if (op.when != When::step_end) continue;
        gathered += op.op == OpKind::all_gather && plan.comm_channel(op).group == Axis::tensor;
        columns += op.op == OpKind::join_columns;
      }
      // Four matrices of the block are divided; a rank of a data-parallel group gathers those that it updates a part of.
      CHECK((gathered == 4 || (data > 1 && stage > 0 && gathered > 0 && gathered < 4)));
      CHECK((columns == 2 || (data > 1 && stage > 0)));
    }
}

TEST_CASE("Lamb's square sums are those of all ranks of the tensor group") {
  for (const int data : {1, 2}) {
    const Plan plan = plan_of(layers_job(OptimizerKind::lamb, data, 1), 1).train;
    const Program& p = plan.program;
    int64_t sums = 0;
    for (const Instruction& op : p.instructions) {
      if (op.op != OpKind::lamb) continue;
      const auto attrs = attrs_as<LambAttrs>(op.attrs);
      CHECK(p.at(op.reads[1]).shape == Shape{2 * data * 2 * attrs.parameters});
      ++sums;
    }
    CHECK(sums > 0);
    for (const Instruction& op : p.instructions)
      if (op.op == OpKind::all_gather && p.at(op.writes[0]).dtype == DType::f64)
        CHECK(ranks_of(plan.place, plan.comm_channel(op)) == 2 * data);
  }
}
