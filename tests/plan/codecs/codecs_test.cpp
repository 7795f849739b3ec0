// Parameters that travel quantized.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "runtime/ir/quantized.h"
#include "runtime/plan/report/print.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job codec_job(int ranks, int shard_ranks = 0, DType dtype = DType::bf16) {
  Job job = sharded_job(3, ranks);
  job.shards.ranks = shard_ranks;
  job.dtype = job.wire_dtype = dtype;
  job.model.set("vocab_size", 65);
  job.model.set("n_embd", 64);
  return job;
}
Job with_gradients(Job job) {
  job.quantize.gradients = true;
  return job;
}
// Groups that carry gradients alone.
Job in_groups(Job job, int ranks) {
  job.shards = {ranks, false, false};
  return with_gradients(std::move(job));
}
Job with_weights(Job job) {
  job.quantize.weights = true;
  return job;
}

const std::string& name_of(const Plan& plan, BufferId id) {
  return plan.program.at(plan.program.root(id)).name;
}
// Returns whether an instruction adds packed gradients, not to measure them.
bool adds(const Plan& plan, const Instruction& op) {
  return op.op == OpKind::sum_int4 && !name_of(plan, op.writes[0]).starts_with("measured:");
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
    for (const auto& [ranks, shard] :
         {std::pair{2, 0}, {4, 0}, {3, 0}, {4, 2}, {8, 2}, {6, 3}, {2, 1}, {3, 1}, {8, 1}}) {
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
        CHECK(sent_on(plan, kStateAxes) == gradients + gathers * (ranks - 1));
      } else if (shard == 1) {
        CHECK(sent_on(plan, kStateAxes) == gradients + exchanged * (ranks - 1));
        CHECK(wire_bytes(plan) == sent_on(plan, kStateAxes));
      } else {
        const int64_t replicas = ranks / shard;
        CHECK(sent_on(plan, kStateAxes) == gradients);
        CHECK(sent_on(plan, Axis::shard) == gathers * replicas * (shard - 1));
        CHECK(sent_on(plan, Axis::replica) == exchanged * (replicas - 1));
      }
      const double ratio = static_cast<double>(wire_bytes(plan) - gradients) /
                           static_cast<double>(wire_bytes(plain) - gradients);
      CHECK(ratio == Approx((1 + 4.0 / 256) / size_of(dtype)).epsilon(0.02));
    }
}

TEST_CASE("quantized shards take the bytes of int8, and ranks keep a slice of their own") {
  for (const auto& [ranks, shard] : {std::pair{4, 2}, {8, 4}, {6, 3}, {4, 1}, {5, 1}}) {
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
  CHECK(count_ops(plan_of(with_weights(codec_job(1)), 0).train, OpKind::quantize) == 0);
}

TEST_CASE("all ranks post the same collectives with quantized weights, whatever stays gathered") {
  for (const int64_t reuse : {0, 1'000'000'000})
    for (const int shard : {0, 1, 2}) {
      Job job = with_weights(codec_job(4, shard));
      job.gather.max_reuse_distance = reuse;
      const std::vector<std::string> first = comm_work(plan_of(job, 0).train);
      for (int rank = 1; rank < 4; ++rank) CHECK(comm_work(plan_of(job, rank).train) == first);
    }
}

TEST_CASE("quantized weights: tied parameters that stay gathered are sent when they are unpacked") {
  Job job = with_weights(codec_job(4));
  job.pipeline.stages = 2;
  job.model.set("tied_head", true);
  job.gather = {};
  const Plan plan = plan_of(job, 0).train;
  bool unpacked = false;
  size_t sent = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (op.op == OpKind::dequantize && name_of(plan, op.writes[0]) == "gathered:embedding")
      unpacked = true;
    if (op.op != OpKind::send || plan.comm_channel(op).link != Link::tied) continue;
    ++sent;
    CHECK(unpacked);
  }
  CHECK(sent > 0);
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

TEST_CASE(
    "bytes that leave a host: once around a ring of hosts, or each slice that is another host's") {
  const std::vector<int> one(4, 0), two{0, 0, 1, 1};
  const Plan plain = plan_of(codec_job(4), 1).train;
  const int64_t sent = wire_bytes(plain);
  CHECK(sent_bytes(plain, one) == SentBytes{sent, 0});
  CHECK(sent_bytes(plain, two) == SentBytes{sent, sent / 3 * 2});
  const Plan shards = plan_of(codec_job(4, 2), 1).train;
  // Each rank of a host exchanges updated parameters with one of the other host.
  CHECK(sent_bytes(shards, two).host ==
        sent_on(shards, kStateAxes) / 3 * 2 + 2 * sent_on(shards, Axis::replica));
  const Plan groups = plan_of(in_groups(codec_job(4), 2), 1).train;
  const Plan one_hop = plan_of(in_groups(codec_job(4), 0), 1).train;
  const int64_t gathers = sent_on(groups, kStateAxes) / 3 * 2;
  CHECK(sent_bytes(groups, two).host == gathers + 2 * sent_on(groups, Axis::replica));
  CHECK(sent_bytes(one_hop, two).host ==
        gathers + 2 * 2 * (sent_on(one_hop, kStateAxes) - sent_on(groups, kStateAxes)) / 3);
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

TEST_CASE(
    "quantized gradients: packed parts go to their owners, in two hops where there are groups") {
  for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
    for (const auto& [ranks, group] :
         {std::pair{2, 0}, {3, 0}, {4, 0}, {4, 2}, {8, 2}, {8, 4}, {6, 3}, {4, 1}, {4, 4}}) {
      INFO(ranks << " ranks in groups of " << group);
      Job job = in_groups(codec_job(ranks), group);
      job.reduce = reduce;
      const Plan plan = plan_of(job).train;
      const bool two = group > 1 && group < ranks;
      const auto units = plan.program.units.size();
      CHECK(count_ops(plan, OpKind::reduce_scatter) == 0);
      CHECK(count_ops(plan, OpKind::quantize_int4) == units);
      CHECK(std::ranges::count_if(plan.program.instructions, [&](const Instruction& op) {
              return adds(plan, op);
            }) == static_cast<ptrdiff_t>(units));
      CHECK(count_ops(plan, OpKind::requantize_int4) == (two ? units : 0));
      CHECK(count_ops(plan, OpKind::all_to_all) == (two ? 2 : 1) * units);
      const int64_t times = reduce == ReduceMode::boundary ? 1 : 2;
      int64_t parts = 0;  // bytes of one from each unit
      for (const Unit& unit : plan.program.units)
        parts += times * int4_bytes(unit.elements / ranks);
      const int64_t gathers = wire_bytes(plan_of(codec_job(ranks)).train) -
                              2 * 2 * padded(plan_of(codec_job(ranks))) / ranks * (ranks - 1);
      CHECK(sent_on(plan, kStateAxes) == (two ? 0 : parts * (ranks - 1)) + gathers);
      if (!two) continue;
      const int64_t groups = ranks / group;
      CHECK(sent_on(plan, Axis::shard) == parts * groups * (group - 1));
      CHECK(sent_on(plan, Axis::replica) == parts * (groups - 1));
    }
}

TEST_CASE("quantized gradients: every part has its owner's place in what a rank sends") {
  const Plan plan = plan_of(in_groups(codec_job(6), 2), 3).train;
  const Program& p = plan.program;
  for (const Instruction& op : p.instructions) {
    if (op.op == OpKind::quantize_int4) {
      CHECK(std::get<Int4Attrs>(op.attrs).group == 2);
      CHECK(p.at(op.writes[0]).shape[0] == 6);
      CHECK_FALSE(name_of(plan, op.reads[0]).starts_with("wire:"));
    }
    if (op.op == OpKind::requantize_int4)
      CHECK(p.at(op.reads[0]).shape == Shape{2, 3, p.at(op.writes[0]).shape[1]});
    if (!adds(plan, op)) continue;
    CHECK(p.at(op.reads[0]).shape[0] == 3);
    CHECK(p.at(op.reads[0]).shape[1] == 1);
  }
}

TEST_CASE("quantized gradients: the second hop of a unit begins when the next unit is sent") {
  Job job = in_groups(codec_job(4), 2);
  job.model.set("n_layer", 12);  // a layer is small enough to be on its way beside another
  for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
    job.reduce = reduce;
    for (const bool overlap : {false, true}) {
      job.overlap_comm = overlap;
      const Plan plan = plan_of(job).train;
      std::string order;
      for (const Instruction& op : plan.program.instructions)
        order += op.op == OpKind::quantize_int4     ? "q"
                 : op.op == OpKind::requantize_int4 ? "r"
                 : adds(plan, op)                   ? "s"
                                                    : "";
      CAPTURE(order);
      CHECK(order.starts_with(overlap ? "qqr" : "qrsqrs"));
    }
  }
}

TEST_CASE("quantized gradients: groups do not divide parameters, shards do both") {
  for (int rank = 0; rank < 4; ++rank) {
    const RankPlan plain = plan_of(codec_job(4), rank);
    const RankPlan groups = plan_of(in_groups(codec_job(4), 2), rank);
    for (const MemoryClass memory :
         {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer})
      CHECK(bytes_of(groups, memory) == bytes_of(plain, memory));
    const RankPlan shards = plan_of(with_gradients(codec_job(4, 2)), rank);
    CHECK(bytes_of(shards, MemoryClass::parameters) ==
          bytes_of(plan_of(codec_job(4, 2), rank), MemoryClass::parameters));
    CHECK(count_ops(shards.train, OpKind::requantize_int4) == shards.train.program.units.size());
  }
  CHECK(count_ops(plan_of(in_groups(codec_job(1), 0), 0).train, OpKind::quantize_int4) == 0);
}

TEST_CASE("the hosts are groups for gradients where they divide the ranks evenly") {
  Job job = with_gradients(codec_job(4));
  job.shards = {0, true, false};
  Job even = job, uneven = job;
  settle_host_shards(even, std::vector{0, 0, 1, 1});
  settle_host_shards(uneven, std::vector{0, 0, 0, 1});
  CHECK(even.shards == ShardConfig{2, false, false});
  CHECK(uneven.shards == ShardConfig{0, false, false});
}

TEST_CASE("all ranks post the same collectives with quantized gradients") {
  for (const bool weights : {false, true})
    for (const int group : {0, 2}) {
      Job job = in_groups(codec_job(4), group);
      job.quantize.weights = weights;
      const std::vector<std::string> first = comm_work(plan_of(job, 0).train);
      for (int rank = 1; rank < 4; ++rank) CHECK(comm_work(plan_of(job, rank).train) == first);
    }
}

TEST_CASE("all of ZeRO++ sends at most 0.26 of the bytes of stage 3 between hosts") {
  Job plain = codec_job(8);
  plain.batch = {16, 2, 1};
  // Each layer is gathered twice, in the forward and the backward pass.
  plain.model.set("n_layer", 12);
  plain.model.set("n_embd", 128);
  Job job = with_gradients(with_weights(plain));
  job.shards.ranks = 4;
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const SentBytes with = sent_bytes(plan_of(job).train, hosts),
                  without = sent_bytes(plan_of(plain).train, hosts);
  CHECK(static_cast<double>(with.host) < 0.26 * static_cast<double>(without.host));
  CHECK_THAT(
      codec_line(job, plan_of(job).train, hosts, fake_inputs()),
      Catch::StartsWith("parameters travel as int8 in blocks of 256, gradients as int4 in blocks "
                        "of 128, in two hops (within groups of 4 ranks, then among 2 groups)"));
}

TEST_CASE("what is lost is measured once a step, of the part that a rank owns") {
  for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
    for (const int shard : {0, 2}) {
      Job job = with_gradients(with_weights(codec_job(4, shard)));
      job.reduce = reduce;
      job.eval_interval = 1;
      const RankPlan rank = plan_of(job, 2);
      const Program& p = rank.train.program;
      const int64_t units = static_cast<int64_t>(p.units.size());
      std::map<std::string, int64_t> measured;
      for (const Issue& issue : rank.train.order) {
        const Instruction& op = p.instructions[static_cast<size_t>(issue.instruction)];
        if (op.op != OpKind::error_squares) continue;
        ++measured[name_of(rank.train, op.writes[0])];
        CHECK((op.when == When::step_begin || op.when == When::last_micro));
        CHECK(p.at(op.writes[0]).parent_offset % 2 == 0);
      }
      std::map<std::string, int64_t> expected{{"codec_error:weights", units},
                                              {"codec_error:gradients", units}};
      if (shard > 0) expected["codec_error:sums"] = units;
      CHECK(measured == expected);
      CHECK(count_ops(rank.validate, OpKind::error_squares) == 0);
    }
  CHECK(count_ops(plan_of(codec_job(4)).train, OpKind::error_squares) == 0);
}
