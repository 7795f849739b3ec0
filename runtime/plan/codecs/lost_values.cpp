#include "runtime/plan/codecs/lost_values.h"

#include <string>

#include "runtime/ir/codec_errors.h"

namespace dstrain {

Instruction once_a_step(const Instruction& like) {
  Instruction op = like;
  op.attrs = {};
  op.accumulate = Accumulate::never;
  if (op.when == When::every_micro) op.when = When::last_micro;
  return op;
}

Instruction measure_loss(Program& program, int unit, std::string_view of, BufferId exact,
                         BufferId back, const Instruction& like) {
  const std::string name = codec_error_name(of);
  BufferId sums = program.find(name);
  if (sums == kNone)
    sums = program.add_buffer({.name = name,
                               .shape = {static_cast<int64_t>(program.units.size()), 2},
                               .dtype = DType::f64,
                               .memory = MemoryClass::workspace,
                               .lifetime = Lifetime::persistent,
                               .role = BufferRole::codec_errors});
  Instruction op = once_a_step(like);
  op.op = OpKind::error_squares;
  op.reads = {exact, back};
  op.writes = {program.view(sums, 2 * unit, 2)};
  return op;
}

}  // namespace dstrain
