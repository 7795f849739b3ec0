#include <utility>
#include <vector>

#include "runtime/plan/passes/passes.h"

namespace dstrain {

void begin_step(Program& program) {
  const int32_t group = program.add_group("step");
  std::vector<Instruction> list;
  Instruction load{.op = OpKind::load_batch, .when = When::step_begin, .group = group};
  for (const ProgramInput& input : program.inputs) load.writes.push_back(input.buffer);
  list.push_back(std::move(load));
  const bool training = program.instructions.back().when == When::step_end;
  if (training)
    list.push_back({.op = OpKind::reduce_counts,
                    .when = When::step_begin,
                    .reads = {program.input(InputRole::labels)},
                    .group = group});
  program.instructions.insert(program.instructions.begin(), list.begin(), list.end());
}

}  // namespace dstrain
