#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/ir/quantized.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/codecs/gather_codecs.h"
#include "runtime/plan/codecs/lost_values.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/transfers.h"

namespace dstrain {
namespace {

Unit& unit_of(const CodecPlan& plan, int unit) {
  return plan.program.unit(unit);
}

// Appends the gather of `count` blocks of `held`, of each the same part of `all`.
void gather_blocks(Program& program, int64_t count, BufferId held, BufferId all, Instruction like,
                   std::vector<Instruction>& list) {
  const int64_t mine = program.at(held).shape.elements() / count;
  const int64_t block = program.at(all).shape.elements() / count;
  like.op = OpKind::all_gather;
  for (int64_t b = 0; b < count; ++b) {
    like.reads = {program.view(held, b * mine, mine)};
    like.writes = {program.view(all, b * block, block)};
    list.push_back(like);
  }
}

}  // namespace

PlainGather::PlainGather(const CodecPlan& plan, const GatherOperands& operands)
    : plan_(plan), operands_(operands) {}

void PlainGather::send(const Instruction& like, std::vector<Instruction>& list) {
  const UnitBuffer& values = unit_of(plan_, operands_.unit).buffers.values;
  const bool shards = values.held == Held::shard;
  Instruction op = like;
  op.channel = channel_of(plan_.place, values.divided);
  gather_blocks(plan_.program, shards ? plan_.place.replicas() : 1, operands_.held,
                operands_.gathered, std::move(op), list);
}

Int8Gather::Int8Gather(const CodecPlan& plan, const GatherOperands& operands)
    : plan_(plan), operands_(operands) {}

void Int8Gather::send(const Instruction& like, std::vector<Instruction>& list) {
  Program& program = plan_.program;
  const Place& place = plan_.place;
  const Unit& unit = unit_of(plan_, operands_.unit);
  const Axes within = within_replica(unit.axes);
  const bool shards = unit.buffers.packed != kNone;
  const int64_t ranks = place.ranks_in(unit.axes);
  like_ = like;
  if (shards && place.ranks_in(within) == 1) {
    packed_ = operands_.held;  // it has all slices
    return;
  }
  const int64_t bytes = quantized_bytes(unit.elements / ranks);
  packed_ = program.add_buffer({.name = "quantized:" + operands_.name,
                                .shape = {ranks, bytes},
                                .dtype = DType::u8,
                                .memory = MemoryClass::communication,
                                .role = BufferRole::parameters,
                                .unpacked = operands_.gathered});
  Instruction op = like;
  op.channel = channel_of(place, shards ? within : unit.axes);
  if (shards)
    return gather_blocks(program, place.replicas(), operands_.held, packed_, std::move(op), list);
  const BufferId mine = program.view(packed_, place.rank_in(unit.axes) * bytes, bytes);
  op.op = OpKind::quantize;
  op.reads = {operands_.held};
  op.writes = {mine};
  list.push_back(op);
  gather_blocks(program, 1, mine, packed_, std::move(op), list);
}

void Int8Gather::receive(std::vector<Instruction>& list) {
  Instruction op = like_;
  op.op = OpKind::dequantize;
  op.reads = {packed_};
  op.writes = {operands_.gathered};
  list.push_back(op);
  if (!operands_.measures) return;
  // The rank's slice, and what all ranks compute with.
  const int64_t n = plan_.program.at(operands_.exact).shape.elements();
  const int64_t rank = plan_.place.rank_in(unit_of(plan_, operands_.unit).axes);
  const BufferId back = plan_.program.view(operands_.gathered, rank * n, n);
  list.push_back(measure_loss(plan_.program, operands_.unit, "weights", operands_.exact, back, op));
}

bool PackedShards::take(const Unit& unit) const {
  return unit.codecs.parameters == CodecKind::int8_blocks && plan_.place.replicas_hold() &&
         plan_.place.replicas() > 1;
}

BufferId PackedShards::add(int index, int32_t group) {
  const auto [known, is_new] = slices_.try_emplace(index, kNone);
  if (!is_new) return known->second;
  Program& program = plan_.program;
  Unit& unit = unit_of(plan_, index);
  Instruction op{.when = When::step_begin, .group = group};
  Exchange exchange;
  BufferId slice = unit.buffers.values.id;
  if (program.space_of(slice) != Space::device) {
    Buffer brought{.name = "brought:" + unit.name,
                   .shape = program.at(slice).shape,
                   .dtype = program.at(slice).dtype,
                   .memory = MemoryClass::communication,
                   .lifetime = Lifetime::step,
                   .copy_of = slice,
                   .role = BufferRole::parameters};
    const BufferId away = std::exchange(slice, program.add_buffer(std::move(brought)));
    exchange.hops = transfer(program, away, slice, op);
    for (const Instruction& hop : exchange.hops)
      program.at(program.root(hop.writes[0])).lifetime = Lifetime::step;
    std::ranges::reverse(exchange.hops);  // the last one first
  }
  const int64_t bytes = quantized_bytes(program.at(slice).shape.elements());
  const BufferId packed = program.add_buffer({.name = "shard:" + unit.name,
                                              .shape = {plan_.place.replicas(), bytes},
                                              .dtype = DType::u8,
                                              .memory = MemoryClass::parameters,
                                              .lifetime = Lifetime::step,
                                              .role = BufferRole::parameters});
  const BufferId mine = program.view(packed, plan_.place.replica() * bytes, bytes);
  op.op = OpKind::quantize;
  op.reads = {slice};
  op.writes = {mine};
  exchange.ops.push_back(op);
  op.channel = channel_of(plan_.place, Axis::replica);
  gather_blocks(program, 1, mine, packed, std::move(op), exchange.ops);
  exchanges_.push_back(std::move(exchange));
  unit.buffers.packed = packed;
  return known->second = slice;
}

void PackedShards::append_exchanges(std::vector<Instruction>& list) {
  constexpr int kHops = 2;
  const auto count = static_cast<int>(exchanges_.size());
  for (int u = -kHops; u < count; ++u) {
    for (int last = kHops; last-- > 0;) {
      const int other = u + 1 + last;
      if (other < 0 || other >= count) continue;
      std::vector<Instruction>& hops = exchanges_[static_cast<size_t>(other)].hops;
      if (static_cast<int>(hops.size()) > last)
        list.push_back(std::move(hops[static_cast<size_t>(last)]));
    }
    if (u >= 0) std::ranges::move(exchanges_[static_cast<size_t>(u)].ops, std::back_inserter(list));
  }
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
  const Unit& unit = program.unit(buffer.gathered_unit);
  return op.reads[0] != kNone && program.root(op.reads[0]) == unit.buffers.packed ? written : kNone;
}

}  // namespace dstrain
