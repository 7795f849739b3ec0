// Parameters that travel quantized.
#include <catch2/catch.hpp>
#include <set>

#include "runtime/ir/quantized.h"
#include "runtime/plan/report/codec_lines.h"
#include "runtime/plan/report/print.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job codec_job(int ranks, int shard_ranks = 0, DType dtype = DType::bf16) {
  Job job = sharded_job(3, ranks);
  job.shards.ranks = shard_ranks;
  job.dtype = job.wire_dtype = dtype;
  job.model.vocab_size = 65;
  job.model.n_embd = 64;
  return job;
}
Job with_weights(Job job) {
  job.quantize.weights = true;
  return job;
}

const std::string& name_of(const Plan& plan, BufferId id) {
  return plan.program.at(plan.program.root(id)).name;
}

int64_t sent_on(const Plan& plan, Channel channel) {
  int64_t bytes = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (!is_collective(op.op) || op.channel != channel) continue;
    const int64_t n = ranks_of(plan.place, channel);
    bytes += std::max(plan.program.at(op.reads[0]).bytes(), plan.program.at(op.writes[0]).bytes()) /
             n * (n - 1);
  }
  return bytes;
}

}  // namespace

TEST_CASE(
    "quantized weights: a gather packs the own slice, gathers bytes, and unpacks all slices") {
  const Plan plan = plan_of(with_weights(codec_job(4)), 1).train;
  const Program& p = plan.program;
  size_t packed = 0, unpacked = 0;
  for (size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& op = p.instructions[i];
    if (op.op == OpKind::quantize) {
      ++packed;
      CHECK(name_of(plan, op.reads[0]).starts_with("params:"));
      const Instruction& gather = p.instructions[i + 1];
      REQUIRE(gather.op == OpKind::all_gather);
      CHECK(gather.reads == op.writes);
      const int64_t slice = p.at(op.reads[0]).shape.elements();
      CHECK(p.at(gather.writes[0]).shape == Shape{4, quantized_bytes(slice)});
      CHECK(p.at(gather.reads[0]).parent_offset == quantized_bytes(slice));
    }
    if (op.op == OpKind::all_gather && op.when != When::step_end)
      CHECK(name_of(plan, op.writes[0]).starts_with("quantized:"));
    if (op.op == OpKind::dequantize) {
      ++unpacked;
      CHECK(name_of(plan, op.writes[0]).starts_with("gathered:"));
      // It follows the work that runs beside the gather.
      const std::set<BufferId> gathered{op.writes[0]};
      const auto reads = [&](const Instruction& next) {
        for (const BufferId id : next.reads)
          if (id != kNone && gathered.contains(p.root(id))) return true;
        return false;
      };
      CHECK(reads(p.instructions[i + 1]));
    }
  }
  CHECK(packed == unpacked);
  CHECK(packed == count_ops(plan_of(codec_job(4), 1).train, OpKind::all_gather));
}

TEST_CASE("quantized weights: bytes of gathers are those of packed slices") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [ranks, shard] : {std::pair{2, 0}, {4, 0}, {3, 0}, {4, 2}, {8, 2}, {6, 3}}) {
      INFO(ranks << " ranks, shards of " << shard);
      const Job job = codec_job(ranks, shard, dtype);
      const Plan plain = plan_of(job).train, plan = plan_of(with_weights(job)).train;
      int64_t gathers = 0, exchanged = 0;
      std::set<BufferId> seen;
      for (const Issue& issue : plan.order) {
        const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
        if (op.op != OpKind::dequantize) continue;
        gathers += plan.program.at(op.reads[0]).shape[1];
      }
      for (const Unit& unit : plan.program.units)
        exchanged += quantized_bytes(unit.elements / ranks);
      const int64_t gradients =
          2 * size_of(dtype) * padded(plan_of(with_weights(job))) / ranks * (ranks - 1);
      if (shard == 0) {
        CHECK(sent_on(plan, data_group) == gradients + gathers * (ranks - 1));
      } else {
        const int64_t replicas = ranks / shard;
        CHECK(sent_on(plan, data_group) == gradients);
        CHECK(sent_on(plan, shard_group) == gathers * replicas * (shard - 1));
        CHECK(sent_on(plan, replica_group) == exchanged * (replicas - 1));
      }
      const double ratio = static_cast<double>(wire_bytes(plan) - gradients) /
                           static_cast<double>(wire_bytes(plain) - gradients);
      CHECK(ratio == Approx((1 + 4.0 / 256) / size_of(dtype)).epsilon(0.02));
    }
}

TEST_CASE("quantized shards take the bytes of int8, and ranks keep a slice of their own") {
  for (const auto& [ranks, shard] : {std::pair{4, 2}, {8, 4}, {6, 3}}) {
    const RankPlan plan = plan_of(with_weights(codec_job(ranks, shard)), 3);
    int64_t expected = 0;
    const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
    for (const Unit& unit : plan.train.program.units) {
      const int64_t slice = unit.elements / ranks;
      expected += aligned(2 * slice) + aligned(ranks / shard * quantized_bytes(slice));
    }
    CHECK(bytes_of(plan, MemoryClass::parameters) == expected);
    CHECK(expected <
          bytes_of(plan_of(codec_job(ranks, shard), 3), MemoryClass::parameters) * 13 / 10);
  }
}

TEST_CASE(
    "quantized weights: validation gathers the same, and what one rank holds stays as it is") {
  Job job = with_weights(codec_job(4, 2));
  job.eval_interval = 1;
  const RankPlan plan = plan_of(job);
  CHECK(count_ops(plan.validate, OpKind::dequantize) == plan.train.program.units.size());
  CHECK(count_ops(plan.validate, OpKind::quantize) == plan.train.program.units.size());
  for (Job whole : {with_weights(codec_job(1)), with_weights(codec_job(4, 1))}) {
    const Plan train = plan_of(whole, 0).train;
    CHECK(count_ops(train, OpKind::quantize) == 0);
  }
}

TEST_CASE("all ranks post the same collectives with quantized weights, whatever stays gathered") {
  for (const int64_t reuse : {0, 1'000'000'000})
    for (const int shard : {0, 2}) {
      Job job = with_weights(codec_job(4, shard));
      job.gather.max_reuse_distance = reuse;
      const std::vector<std::string> first = comm_work(plan_of(job, 0).train);
      for (int rank = 1; rank < 4; ++rank) CHECK(comm_work(plan_of(job, rank).train) == first);
    }
}

TEST_CASE("what is gathered packed counts as parameters from the gather on") {
  Job job = with_weights(codec_job(4));
  job.overlap_comm = false;
  int64_t largest = 0;
  for (const Unit& unit : plan_of(job).train.program.units)
    largest = std::max(largest, unit.elements);
  job.gather.max_live_elements = largest;
  CHECK_NOTHROW(plan_of(job));
}

TEST_CASE("bytes that leave a host: once around a ring, or each slice that is another host's") {
  const std::vector<int> one(4, 0), two{0, 0, 1, 1};
  const Plan plain = plan_of(codec_job(4), 1).train;
  CHECK(sent_bytes(plain, one) == SentBytes{wire_bytes(plain), 0});
  CHECK(sent_bytes(plain, two) == SentBytes{wire_bytes(plain), wire_bytes(plain)});
  const Plan shards = plan_of(codec_job(4, 2), 1).train;
  // Gradients go around one ring, updated parameters around two.
  CHECK(sent_bytes(shards, two).host ==
        sent_on(shards, data_group) + 2 * sent_on(shards, replica_group));
}

TEST_CASE("the printed plan names what travels quantized, and its bytes with and without") {
  const Job job = with_weights(codec_job(4, 2));
  const RankPlan plan = plan_of(job);
  const std::vector<int> hosts{0, 0, 1, 1};
  const std::string line = codec_line(job, plan.train, hosts, fake_inputs());
  const SentBytes with = sent_bytes(plan.train, hosts),
                  without = sent_bytes(plan_of(codec_job(4, 2)).train, hosts);
  CHECK(with.rank < without.rank);
  CHECK(with.host < without.host);
  CHECK_THAT(line, Catch::StartsWith("parameters travel as int8 in blocks of 256; rank 1 sends ") &&
                       Catch::Contains("its host sends"));
  CHECK(codec_line(codec_job(4, 2), plan.train, hosts, fake_inputs()).empty());
  CHECK_THAT(plan_to_text(plan, "t"), Catch::Contains("quantize") &&
                                          Catch::Contains("dequantize") &&
                                          Catch::Contains("all_gather in replica group"));
}
