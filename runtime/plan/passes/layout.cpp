#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 16;  // elements: 64 bytes in f32, so every parameter starts a cache line

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

void layout(Program& program, int ranks) {
  for (Unit& unit : program.units) {
    int64_t at = 0;
    for (int index : unit.parameters) {
      Parameter& p = program.parameters[static_cast<size_t>(index)];
      p.offset = at;
      at += round_up(p.shape.elements(), kAlign);
    }
    unit.elements = round_up(at, kAlign * ranks);
    const BufferId values = program.add_buffer({.name = "params:" + unit.name,
                                                .shape = {unit.elements},
                                                .dtype = program.dtype,
                                                .memory = MemoryClass::parameters,
                                                .lifetime = Lifetime::persistent});
    BufferId gradients = kNone;
    for (int index : unit.parameters) {
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      program.at(p.value).parent = values;
      program.at(p.value).parent_offset = p.offset;
      if (p.gradient == kNone) continue;
      if (gradients == kNone)
        gradients = program.add_buffer({.name = "grads:" + unit.name,
                                        .shape = {unit.elements},
                                        .memory = MemoryClass::gradients,
                                        .lifetime = Lifetime::persistent,
                                        .shared = ranks > 1});
      program.at(p.gradient).parent = gradients;
      program.at(p.gradient).parent_offset = p.offset;
    }
  }
}

}  // namespace dstrain
