// Sparse gradients: rows of tokens travel in place of the embedding's table. Bytes by formula, what stays in the sums,
// and where the table travels all the same.
#include <catch2/catch.hpp>

#include "runtime/config/sparse_gradients.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// A vocabulary that is large beside the 16 tokens of a micro-batch.
Job sparse_job(int ranks, ReduceMode reduce = ReduceMode::boundary) {
  Job job = sharded_job(0, ranks);
  job.model.set("vocab_size", 1001);
  job.reduce = reduce;
  job.sparse_gradients = true;
  return job;
}

// Returns the elements of its root that a buffer is.
Range in_root(const Program& program, BufferId id) {
  int64_t begin = 0;
  const int64_t n = program.at(id).shape.elements();
  for (; program.at(id).parent != kNone; id = program.at(id).parent)
    begin += program.at(id).parent_offset;
  return {begin, begin + n};
}

// Returns the bytes of a ring for `bytes` that pass `passes` times; small messages do not count.
int64_t ring(int64_t bytes, int64_t passes, int64_t ranks) {
  return bytes < 1024 ? 0 : passes * (ranks - 1) * bytes / ranks;
}

// Returns the bytes of a step: of the units' sums without the table, of ids and of rows.
int64_t expected_bytes(const Job& job, const Program& program) {
  const int64_t tokens = job.batch.micro_batch * job.model.integer("block_size") * job.ranks;
  const int64_t sums = job.reduce == ReduceMode::boundary ? 1 : job.batch.accumulation;
  int64_t bytes = job.batch.accumulation *
                  (ring(tokens * 4, 1, job.ranks) +
                   ring(tokens * job.model.integer("n_embd") * size_of(job.dtype), 1, job.ranks));
  for (const Unit& unit : program.units) {
    int64_t n = unit.elements;
    if (unit.name == "embedding")
      n -= program.parameters[static_cast<size_t>(unit.parameters[1])].offset;
    bytes += sums * ring(n * size_of(job.wire_dtype), 2, job.ranks);
  }
  return bytes;
}

}  // namespace

TEST_CASE("token rows: the bytes of a step, and no sum has the table") {
  for (const int ranks : {2, 3, 4})
    for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const DType wire : {DType::f32, DType::bf16})
          for (const DType held : {DType::f32, dtype}) {
            Job job = sparse_job(ranks, reduce);
            job.dtype = dtype;
            job.wire_dtype = wire;
            job.grad_dtype = held;
            CAPTURE(ranks, static_cast<int>(reduce), name_of(dtype), name_of(wire), name_of(held));
            const Plan plan = plan_of(job, 1).train;
            const Program& program = plan.program;
            CHECK(wire_bytes(plan) == expected_bytes(job, program));
            Job dense = job;
            dense.sparse_gradients = false;
            const SparseGradientBytes bytes = sparse_gradient_bytes(job);
            // But for the padding behind the table, and ids of less than 1024 bytes.
            const int64_t saved = wire_bytes(plan_of(dense, 1).train) - wire_bytes(plan);
            CHECK(saved >= bytes.table - bytes.rows);
            CHECK(saved < bytes.table - bytes.rows + 4096);
            const Parameter& table = program.parameters[0];
            REQUIRE(table.name == "token_embedding_table.weight");
            for (const Instruction& op : program.instructions) {
              if (op.op != OpKind::all_reduce) continue;
              const Buffer& root = program.at(program.root(op.reads[0]));
              const bool unit =
                  root.name == "grads:embedding" || root.name == "micro_grads:embedding";
              if (unit) CHECK(in_root(program, op.reads[0]).begin >= table.shape.elements());
              if (root.name == "wire:embedding")
                CHECK(root.shape.elements() < table.shape.elements());
            }
          }
}

TEST_CASE("token rows: the table's gradient is made of the rows of all ranks, in rank order") {
  const int ranks = 3;
  const Job job = sparse_job(ranks);
  const int64_t tokens = job.batch.micro_batch * job.model.integer("block_size"),
                c = job.model.integer("n_embd");
  for (int rank = 0; rank < ranks; ++rank) {
    const Plan plan = plan_of(job, rank).train;
    const Program& program = plan.program;
    const std::vector<size_t> adds = issues_of(plan, OpKind::embed_token_grad);
    REQUIRE(adds.size() == static_cast<size_t>(job.batch.accumulation));
    const Instruction& add = op_at(plan, adds[0]);
    CHECK(add.accumulate == Accumulate::after_first_micro);
    CHECK(program.at(add.reads[0]).shape.elements() == ranks * tokens * c);
    CHECK(program.at(add.reads[1]).shape.elements() == ranks * tokens);
    const Instruction& rows = op_at(plan, adds[0] - 1);
    REQUIRE(rows.op == OpKind::all_gather);
    CHECK(rows.writes[0] == add.reads[0]);
    CHECK(in_root(program, rows.reads[0]).begin == rank * tokens * c);
    const Instruction& ids = op_at(plan, adds[0] - 2);
    REQUIRE(ids.op == OpKind::all_gather);
    CHECK(ids.reads[0] == program.input(InputRole::token_ids));
    CHECK(ids.writes[0] == add.reads[1]);
    CHECK(comm_work(plan) == comm_work(plan_of(job, 0).train));
  }
}

TEST_CASE("token rows: a job whose table travels has the plan of one without the key") {
  const auto same = [](Job job) {
    const Plan with = plan_of(job, 0).train;
    job.sparse_gradients = false;
    const Plan without = plan_of(job, 0).train;
    return with.order.size() == without.order.size() && comm_work(with) == comm_work(without) &&
           with.program.buffers.size() == without.program.buffers.size();
  };
  CHECK_FALSE(same(sparse_job(2)));
  CHECK(same(sparse_job(1)));
  Job job = sparse_job(2);
  job.model.set("tied_head", true);
  CHECK(same(job));
  job = sparse_job(2);
  job.model.set("vocab_size", 17);
  CHECK(same(job));
}

TEST_CASE("token rows: the limit on gathered parameters does not count them") {
  Job job = sparse_job(2);
  job.gather.max_live_elements = 1;
  CHECK_NOTHROW(plan_of(job, 0));
}

TEST_CASE("token rows: one line says what travels, and the bytes of both") {
  const auto line = [](const Job& job) {
    return codec_line(job, plan_of(job, 0).train,
                      std::vector<int>(static_cast<size_t>(job.ranks), 0), fake_inputs());
  };
  Job job = sparse_job(2);
  CHECK_THAT(line(job),
             Catch::StartsWith("sparse_gradients: the token embedding's gradient travels "
                               "as rows of tokens: rows take 4.22 kB a step, the table "
                               "128 kB; rank 0 sends "));
  job.model.set("vocab_size", 17);
  CHECK_THAT(line(job),
             Catch::StartsWith("sparse_gradients: the token embedding's gradient travels "
                               "as the whole table: rows take 4.22 kB a step, the table "
                               "2.18 kB; rank 0 sends "));
  job.model.set("tied_head", true);
  CHECK_THAT(line(job),
             Catch::EndsWith("as the whole table, because the head is tied to it and its "
                             "gradient is dense"));
  CHECK_THAT(line(sparse_job(1)), Catch::StartsWith("no effect of sparse_gradients: one rank"));
}
