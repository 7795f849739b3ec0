#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/unit_spaces.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 16;  // elements: 64 bytes in f32, so every parameter starts a cache line

// Returns what parameters and slices of ranks are multiples of: packed blocks are divided between groups.
int64_t align_of(const Unit& unit) {
  return unit.blocks == BlockFormat::none ? kAlign : group_bytes(unit.blocks);
}

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Gives the parameters of a unit their places.
void place_parameters(Program& program, Unit& unit, const Place& place) {
  const int64_t align = align_of(unit);
  int64_t at = 0;
  for (int index : unit.parameters) {
    Parameter& p = program.parameters[static_cast<size_t>(index)];
    p.offset = at;
    at += round_up(program.at(p.value).shape.elements(), align);  // with rows of padding
  }
  unit.elements = round_up(at, align * place.ranks_in(unit.axes));
}

bool has_gradients(const Program& program, const Unit& unit) {
  return std::ranges::any_of(unit.parameters, [&program](int index) {
    return program.parameters[static_cast<size_t>(index)].gradient != kNone;
  });
}

}  // namespace

void layout(Program& program, const Job& job, Place place, const Residency& residency) {
  for (Unit& unit : program.units) place_parameters(program, unit, place);
  assign_spaces(program, job, place, residency);
  for (Unit& unit : program.units) {
    const BufferId values = program.add_buffer(
        {.name = "params:" + unit.name,
         .shape = {unit.elements / divisor(residency.parameters, place, unit.axes)},
         .dtype = unit.blocks == BlockFormat::none ? program.dtype : DType::u8,
         .memory = MemoryClass::parameters,
         .lifetime = Lifetime::persistent,
         .space = unit.spaces.values});
    // A drive has no bytes to save: a file has room for each tensor.
    const bool on_disk = unit.spaces.gradients == Space::disk;
    const BufferId gradients =
        has_gradients(program, unit)
            ? program.add_buffer(
                  {.name = "grads:" + unit.name,
                   .shape = {unit.elements / divisor(residency.gradients, place, unit.axes)},
                   .dtype = residency.grad_dtype,
                   .memory = MemoryClass::gradients,
                   .lifetime = on_disk ? Lifetime::persistent : residency.gradients_live,
                   .space = unit.spaces.gradients})
            : kNone;
    unit.buffers = {.values = unit_buffer(values, residency.parameters, unit.axes),
                    .gradients = unit_buffer(gradients, residency.gradients, unit.axes)};
    for (int index : unit.parameters) {
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      if (residency.parameters == Held::whole) {
        program.at(p.value).parent = values;
        program.at(p.value).parent_offset = p.offset;
      }
      if (p.gradient == kNone || residency.gradients != Held::whole ||
          is_16bit(residency.grad_dtype))
        continue;
      program.at(p.gradient).parent = gradients;
      program.at(p.gradient).parent_offset = p.offset;
    }
  }
}

}  // namespace dstrain
