#include "runtime/plan/recognise/norm_parts.h"

#include <utility>

namespace dstrain {

std::vector<Instruction> norm_and_sum(Program& program, const Instruction& op,
                                      const FoundNorm& found) {
  const BufferId y = op.writes[0];
  const Shape shape = program.at(found.reads[0]).shape;
  const DType dtype = program.at(found.reads[0]).dtype;
  if (found.added != kNone) {
    const Buffer& added = program.at(found.added);
    if (added.dtype != dtype || added.shape.elements() != shape.elements() ||
        added.shape[-1] != shape[-1])
      return {};
  }
  if (!make_rows(program, y, shape[-1])) return {};
  program.at(y).shape = shape;
  const std::string name = program.at(y).name;
  const auto buffer = [&](const std::string& suffix, const Shape& of, DType type) {
    return program.add_buffer({.name = name + suffix, .shape = of, .dtype = type});
  };
  const BufferId norm = found.added == kNone ? y : buffer(".norm", shape, dtype);
  std::vector<BufferId> writes{norm};
  for (const auto& [suffix, of] : found.statistics)
    writes.push_back(buffer(suffix, of, DType::f32));
  std::vector<Instruction> instructions{
      in_place_of(op, found.norm, found.attrs, found.reads, std::move(writes))};
  if (found.added != kNone)
    instructions.push_back(
        in_place_of(op, OpKind::add_dropout, DropoutAttrs{.seq_len = 1}, {found.added, norm}, {y}));
  return instructions;
}

}  // namespace dstrain
