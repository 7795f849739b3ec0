// The column of codecs in the state table: which codec the transfers of a unit use, and what follows from it in a plan.
#include <catch2/catch.hpp>

#include "runtime/ir/codec_errors.h"
#include "runtime/plan/codecs/codec.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/report/print.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// All of ZeRO++: shards of `shard` ranks, or one group.
Job quantized_job(int ranks, int shard = 0) {
  Job job = sharded_job(3, ranks);
  job.shards.ranks = shard;
  job.quantize = {.weights = true, .gradients = true};
  return job;
}

UnitCodecs codecs_of(const Job& job, StepKind kind = StepKind::regular) {
  return step_residency(job, place_of(job, 0), kind).codecs;
}

std::string name_of(const Program& program, BufferId id) {
  return program.at(program.root(id)).name;
}

}  // namespace

TEST_CASE("the state table names the codec of what travels, and none where nobody sends") {
  const UnitCodecs plain = codecs_of(sharded_job(3));
  CHECK(plain.parameters == CodecKind::as_it_is);
  CHECK(plain.gradients == CodecKind::as_it_is);
  const UnitCodecs one_hop = codecs_of(quantized_job(4));
  CHECK(one_hop.parameters == CodecKind::int8_blocks);
  CHECK(one_hop.gradients == CodecKind::int4_blocks);
  CHECK(one_hop.sums == CodecKind::as_it_is);
  CHECK(codecs_of(quantized_job(4, 2)).sums == CodecKind::int4_blocks);
  const UnitCodecs alone = codecs_of(quantized_job(1));
  CHECK(alone.parameters == CodecKind::as_it_is);
  CHECK(alone.gradients == CodecKind::as_it_is);
}

TEST_CASE("the kind of a step decides whether a hook's or an optimizer's codec is used") {
  Job factors = sharded_job(1);
  factors.hook = {.kind = HookKind::power_sgd, .start = 2};
  CHECK(codecs_of(factors).gradients == CodecKind::low_rank);
  CHECK(codecs_of(factors, StepKind::whole_gradients).gradients == CodecKind::as_it_is);
  Job signs = sharded_job(0);
  signs.optimizer.kind = OptimizerKind::one_bit_adam;
  signs.wire_dtype = DType::bf16;
  CHECK(codecs_of(signs).gradients == CodecKind::not_sent);
  CHECK(codecs_of(signs, StepKind::whole_gradients).gradients == CodecKind::as_it_is);
  // What is not sent is not rounded for the wire either.
  CHECK(step_residency(signs, place_of(signs, 0)).wire_dtype == DType::f32);
}

TEST_CASE("a unit of packed blocks travels as it is beside units that are quantized") {
  Job job = quantized_job(2);
  job.model.set_fine_tuning(
      {.groups = {}, .lora = LoraConfig{.r = 2, .all_linear = true, .base = BlockFormat::int8}});
  job.dtype = job.wire_dtype = DType::bf16;
  int packed = 0;
  for (const Unit& unit : plan_of(job).train.program.units) {
    packed += unit.blocks != BlockFormat::none;
    CHECK((unit.codecs.parameters == CodecKind::as_it_is) == (unit.blocks != BlockFormat::none));
  }
  CHECK(packed > 0);
}

TEST_CASE("only the unit of the token embedding travels as rows of tokens") {
  Job job = sharded_job(0);
  job.model.set("vocab_size", 1001);
  job.sparse_gradients = true;
  const RankPlan plan = plan_of(job);
  for (const Unit& unit : plan.train.program.units)
    CHECK((unit.codecs.gradients == CodecKind::token_rows) == (unit.name == "embedding"));
  // Rows that are gathered are no parameters, and none are sharded.
  CHECK_THAT(plan_to_text(plan, "t"), !Catch::Contains("parameters are sharded"));
}

TEST_CASE(
    "int4 gradients of a step's end travel beside computation within the limits of other sums") {
  Job job = quantized_job(4);
  job.reduce = ReduceMode::boundary;
  job.model.set("n_layer", 12);  // a layer is small enough to be on its way beside another
  for (const int64_t bucket : {int64_t{100}, int64_t{1'000'000'000}}) {
    job.reduce_bucket_elements = bucket;
    const Program program = plan_of(job).train.program;
    std::string order;
    for (const Instruction& op : program.instructions)
      if (op.op == OpKind::quantize_int4)
        order += "q";
      else if (op.op == OpKind::sum_int4 &&
               !name_of(program, op.writes[0]).starts_with("measured:"))
        order += "s";
    CAPTURE(order);
    CHECK(order.starts_with(bucket == 100 ? "qsqs" : "qq"));
  }
}

TEST_CASE(
    "int4 sums of a step's end are added where gradients are held, whatever the wire's dtype") {
  Job job = quantized_job(4);
  job.reduce = ReduceMode::boundary;
  job.dtype = job.wire_dtype = DType::bf16;
  const Program program = plan_of(job).train.program;
  for (const Unit& unit : program.units) {
    CHECK(program.find("summed:" + unit.name) == kNone);
    CHECK(program.find("wire:" + unit.name) == kNone);
  }
}

TEST_CASE("what a unit loses is measured in the unit's own row") {
  for (const int shard : {0, 2}) {
    const Program program = plan_of(quantized_job(4, shard), 3).train.program;
    for (const Instruction& op : program.instructions) {
      if (op.op != OpKind::error_squares) continue;
      const auto row = static_cast<size_t>(program.at(op.writes[0]).parent_offset / 2);
      CHECK(program.units[row].name == program.group_name(op));
    }
  }
}

TEST_CASE(
    "buffers say which unit's parameters are gathered in them, and what is unpacked to them") {
  for (const int shard : {0, 2, 1}) {
    const Program program = plan_of(quantized_job(4, shard)).train.program;
    std::vector<int> gathers(program.units.size());
    for (const Instruction& op : program.instructions) {
      const BufferId gathered = gathered_from(program, op);
      if (gathered == kNone) continue;
      const int unit = program.at(gathered).gathered_unit;
      REQUIRE(unit >= 0);
      ++gathers[static_cast<size_t>(unit)];
      CHECK(program.at(gathered).shape.elements() ==
            program.units[static_cast<size_t>(unit)].elements);
      // A lone rank has all parameters packed, and counts them from where it unpacks them.
      CHECK((op.op == OpKind::dequantize) == (shard == 1));
      if (shard != 1) CHECK(program.at(program.root(op.writes[0])).unpacked == gathered);
    }
    for (const int count : gathers) CHECK(count > 0);
    for (const Unit& unit : program.units) CHECK((unit.buffers.packed != kNone) == (shard > 0));
  }
}
