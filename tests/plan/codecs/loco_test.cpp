// Error feedback of quantized gradients: what a plan keeps of it.
#include <catch2/catch.hpp>
#include <map>

#include "runtime/ir/quantized.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job loco_job(int ranks, int group, ReduceMode reduce) {
  Job job = sharded_job(3, ranks);
  job.dtype = job.wire_dtype = DType::bf16;
  job.reduce = reduce;
  job.shards = {group, false, false};
  job.quantize.gradients = job.quantize.feedback = true;
  job.quantize.error_beta = 0.75f;
  job.quantize.error_steps = 100;
  return job;
}

}  // namespace

TEST_CASE("LoCo: each hop keeps an error for each value that it packs, as bytes, and commits it") {
  for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch})
    for (const auto& [ranks, group] : {std::pair{2, 0}, {3, 0}, {4, 2}, {6, 3}, {4, 4}}) {
      CAPTURE(ranks, group);
      const Job job = loco_job(ranks, group, reduce);
      Job without = job;
      without.quantize.feedback = false;
      const Plan plan = plan_of(job, 1).train;
      const Program& p = plan.program;
      const bool two = group > 1 && group < ranks;
      CHECK(p.codec_state.size() == (two ? 2 : 1) * p.units.size());
      CHECK(count_ops(plan, OpKind::commit_state) == p.codec_state.size());
      CHECK(wire_bytes(plan) == wire_bytes(plan_of(without, 1).train));
      std::map<std::string, int64_t> bytes;
      for (const CodecState& state : p.codec_state) {
        CHECK(state.per_rank);
        const Buffer& values = p.at(state.values);
        CHECK(values.name == state.slot + ":" + state.name);
        CHECK(values.lifetime == Lifetime::persistent);
        CHECK(values.dtype == DType::u8);
        bytes[values.name] = values.bytes();
      }
      for (const Unit& unit : p.units) {
        const int64_t part = quantized_bytes(unit.elements / ranks);
        CHECK(bytes["send_error:" + unit.name] == ranks * part);
        if (two) CHECK(bytes["sum_error:" + unit.name] == ranks / group * part);
      }
      for (const Instruction& op : p.instructions) {
        if (op.op != OpKind::quantize_int4 && op.op != OpKind::requantize_int4) continue;
        const auto attrs = std::get<Int4Attrs>(op.attrs);
        CHECK(attrs.error_beta == 0.75f);
        CHECK(attrs.error_steps == 100);
        REQUIRE(op.reads.size() == 2);
        REQUIRE(op.writes.size() == 2);
        CHECK(p.at(op.writes[1]).name == "next_" + p.at(op.reads[1]).name);
        CHECK((op.accumulate == Accumulate::after_first_micro) ==
              (reduce == ReduceMode::micro_batch));
      }
    }
}

TEST_CASE("LoCo: one rank sends nothing and keeps nothing") {
  CHECK(plan_of(loco_job(1, 0, ReduceMode::boundary), 0).train.program.codec_state.empty());
}

TEST_CASE("LoCo: the line on codecs names the error feedback") {
  const Job job = loco_job(4, 2, ReduceMode::boundary);
  const std::vector<int> hosts{0, 0, 1, 1};
  CHECK_THAT(
      codec_line(job, plan_of(job, 1).train, hosts, fake_inputs()),
      Catch::Contains("gradients as int4 in blocks of 128 with error feedback, in two hops"));
}
