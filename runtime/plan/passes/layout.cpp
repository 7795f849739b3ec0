#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/unit_spaces.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 16;  // elements: 64 bytes in f32, so every parameter starts a cache line

// Returns what parameters and slices of ranks are multiples of: packed blocks are divided between groups, and no slice cuts
// a block of the optimizer's state.
int64_t align_of(const Unit& unit, const Job& job) {
  if (unit.blocks != BlockFormat::none) return group_bytes(unit.blocks);
  return unit.frozen ? kAlign : std::max(kAlign, state_block(job.optimizer));
}

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Gives the parameters of a unit their places.
void place_parameters(Program& program, Unit& unit, const Job& job, const Place& place) {
  const int64_t align = align_of(unit, job);
  int64_t at = 0;
  for (int index : unit.parameters) {
    Parameter& p = program.parameter(index);
    p.offset = at;
    at += round_up(program.at(p.value).shape.elements(), align);  // with rows of padding
  }
  unit.elements = round_up(at, align * place.ranks_in(unit.axes));
}

bool has_gradients(const Program& program, const Unit& unit) {
  return std::ranges::any_of(unit.parameters, [&program](int index) {
    return program.parameter(index).gradient != kNone;
  });
}

// Lays the gradients of parameters where the backward pass writes them: into the buffer of a micro-batch, or that of the
// step.
void place_gradients(Program& program, Unit& unit, const Residency& residency) {
  if (unit.buffers.gradients.id == kNone) return;
  BufferId written = unit.buffers.gradients.id;
  int64_t terms = 1;
  for (const int index : unit.parameters)
    terms = std::max(terms, program.parameter(index).gradient_terms);
  if (residency.has_micro_gradients() || terms > 1) {
    const bool every = residency.reduce == ReduceMode::micro_batch;
    // Ranks add terms at the step's end alone, and until then micro-batches add theirs to them.
    written = unit.buffers.micro_gradients.id = program.add_buffer(
        {.name = "micro_grads:" + unit.name,
         .shape = {terms * unit.elements},
         .memory = every ? MemoryClass::communication : MemoryClass::workspace,
         .lifetime = terms > 1 && !every ? residency.gradients_live : Lifetime::micro,
         .role = BufferRole::gradients});
  }
  for (int index : unit.parameters) {
    const Parameter& p = program.parameter(index);
    if (p.gradient == kNone) continue;
    program.at(p.gradient).parent = written;
    program.at(p.gradient).parent_offset = terms * p.offset;
  }
}

// Gives the units whose gradients leave the device a place for the sum of their squares.
void add_host_squares(Program& program) {
  const auto units = static_cast<int64_t>(program.trained_units().size());
  BufferId all = kNone;
  for (int64_t u = 0; u < units; ++u) {
    Unit& unit = program.unit(u);
    if (unit.spaces.gradients == Space::device) continue;
    if (all == kNone)
      all = program.add_buffer({.name = "host:square_sums",
                                .shape = {units},
                                .dtype = DType::f64,
                                .lifetime = Lifetime::step,
                                .role = BufferRole::square_sums,
                                .space = Space::host});
    unit.buffers.host_squares = program.view(all, u, 1);
  }
}

}  // namespace

void layout(Program& program, const Job& job, Place place, const Residency& of_all) {
  for (Unit& unit : program.units) place_parameters(program, unit, job, place);
  assign_codecs(program, job, of_all);
  assign_spaces(program, job, place, of_all);
  for (Unit& unit : program.units) {
    const Residency residency = unit_residency(of_all, unit, place);
    const BufferId values = program.add_buffer(
        {.name = "params:" + unit.name,
         .shape = {unit.elements / divisor(residency.parameters, place, unit.axes)},
         .dtype = unit.blocks == BlockFormat::none ? program.dtype : DType::u8,
         .memory = MemoryClass::parameters,
         .lifetime = Lifetime::persistent,
         .role = BufferRole::parameters,
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
                   .role = BufferRole::gradients,
                   .space = unit.spaces.gradients})
            : kNone;
    unit.buffers = {.values = unit_buffer(values, residency.parameters, unit.axes),
                    .gradients = unit_buffer(gradients, residency.gradients, unit.axes)};
    if (residency.parameters != Held::whole) continue;
    for (int index : unit.parameters) {
      const Parameter& p = program.parameter(index);
      program.at(p.value).parent = values;
      program.at(p.value).parent_offset = p.offset;
    }
  }
  for (Unit& unit : program.units) place_gradients(program, unit, of_all);
  add_host_squares(program);
}

}  // namespace dstrain
