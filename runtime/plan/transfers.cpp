#include "runtime/plan/transfers.h"

#include <utility>

namespace dstrain {

std::vector<Instruction> transfer(Program& program, BufferId from, BufferId to, Instruction like) {
  const Space source = program.space_of(from), target = program.space_of(to);
  const auto hop = [&](OpKind kind, BufferId reads, BufferId writes) {
    Instruction op = like;
    op.op = kind;
    op.reads = {reads};
    op.writes = {writes};
    return op;
  };
  if (source != Space::disk && target != Space::disk) return {hop(OpKind::copy, from, to)};
  if (source == Space::host) return {hop(OpKind::swap_out, from, to)};
  if (target == Space::host) return {hop(OpKind::swap_in, from, to)};
  Buffer passing{.name = "passing:" + program.at(from).name,
                 .shape = {program.at(from).shape.elements()},
                 .dtype = program.at(from).dtype,
                 .memory = MemoryClass::communication,
                 .copy_of = from,
                 .role = program.at(from).role,
                 .space = Space::host};
  const BufferId between = program.add_buffer(std::move(passing));
  if (source == Space::disk)
    return {hop(OpKind::swap_in, from, between), hop(OpKind::copy, between, to)};
  return {hop(OpKind::copy, from, between), hop(OpKind::swap_out, between, to)};
}

}  // namespace dstrain
