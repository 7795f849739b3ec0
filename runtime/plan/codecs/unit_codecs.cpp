#include <algorithm>

#include "runtime/config/sparse_gradients.h"
#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/codec.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/codecs/gather_codecs.h"
#include "runtime/plan/codecs/gradient_codecs.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {
namespace {

// Returns the index of the unit that has the token embedding first.
int unit_of_token_table(const Program& program) {
  const auto is_writer = [&](const Instruction& op) { return puts_token_rows(program, op); };
  const auto writer = std::ranges::find_if(program.instructions, is_writer);
  check(writer != program.instructions.end(), "the program has no token embedding");
  const BufferId gradient = writer->writes[0];
  const auto writes = [gradient](const Instruction& op) {
    return std::ranges::find(op.writes, gradient) != op.writes.end();
  };
  check(std::ranges::count_if(program.instructions, writes) == 1,
        "the gradient of the token embedding has several parts");
  const auto table = std::ranges::find(program.parameters, gradient, &Parameter::gradient);
  check(program.units[static_cast<size_t>(table->unit)].parameters.front() ==
            table - program.parameters.begin(),
        "the token embedding is not the first parameter of its unit");
  return table->unit;
}

}  // namespace

Residency step_residency(const Job& job, const Place& place, StepKind kind) {
  Residency r = residency_of(job, place);
  const bool in_groups = updates_in_groups(job, kind);
  if (in_groups) r.adds = kShardAxes;
  if (sends_factors(job, place, kind)) {
    r.codecs.gradients = CodecKind::low_rank;
  } else if (keeps_gradients(job, kind) || (in_groups && place.ranks_in(r.adds) == 1)) {
    r.codecs.gradients = CodecKind::not_sent;
    r.reduce = ReduceMode::boundary;
    r.wire_dtype = DType::f32;
  } else if (job.quantize.gradients && r.optimizer != Held::whole) {
    r.codecs.gradients = CodecKind::int4_blocks;
    if (place.factored()) r.codecs.sums = CodecKind::int4_blocks;
  }
  if (job.quantize.weights && r.parameters != Held::whole)
    r.codecs.parameters = CodecKind::int8_blocks;
  r.measures_codecs = job.quantize != QuantizeConfig{};
  return r;
}

void assign_codecs(Program& program, const Job& job, const Residency& residency) {
  for (Unit& unit : program.units) {
    unit.codecs = residency.codecs;
    // Packed blocks are bytes already.
    if (unit.blocks != BlockFormat::none) unit.codecs.parameters = CodecKind::as_it_is;
  }
  const bool trains = std::ranges::any_of(program.parameters,
                                          [](const Parameter& p) { return p.gradient != kNone; });
  if (!trains || !sends_token_rows(job)) return;
  program.units[static_cast<size_t>(unit_of_token_table(program))].codecs.gradients =
      CodecKind::token_rows;
}

std::unique_ptr<Codec> gradient_codec(const CodecPlan& plan, int unit, StepGradients& step) {
  switch (plan.program.units[static_cast<size_t>(unit)].codecs.gradients) {
    case CodecKind::int4_blocks:
      return std::make_unique<Int4Gradients>(plan, unit, step);
    case CodecKind::token_rows:
      return std::make_unique<TokenRows>(plan, unit, step);
    case CodecKind::low_rank:
    case CodecKind::not_sent:
      return nullptr;
    default:
      return std::make_unique<WireGradients>(plan, unit, step);
  }
}

std::unique_ptr<Codec> gather_codec(const CodecPlan& plan, const GatherOperands& operands) {
  const Unit& unit = plan.program.units[static_cast<size_t>(operands.unit)];
  if (unit.codecs.parameters == CodecKind::int8_blocks)
    return std::make_unique<Int8Gather>(plan, operands);
  return std::make_unique<PlainGather>(plan, operands);
}

BufferId gathered_from(const Program& program, const Instruction& op) {
  if (op.writes.empty() || op.writes[0] == kNone) return kNone;
  const BufferId written = program.root(op.writes[0]);
  const Buffer& buffer = program.at(written);
  if (rule_of(op.op).collective == Collective::all_gather) {
    if (buffer.unpacked != kNone) return buffer.unpacked;
    return buffer.gathered_unit >= 0 ? written : kNone;
  }
  if (buffer.gathered_unit < 0 || op.reads.empty()) return kNone;
  const Unit& unit = program.units[static_cast<size_t>(buffer.gathered_unit)];
  return op.reads[0] != kNone && program.root(op.reads[0]) == unit.buffers.packed ? written : kNone;
}

}  // namespace dstrain
