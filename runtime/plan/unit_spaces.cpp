#include "runtime/plan/unit_spaces.h"

#include <algorithm>
#include <vector>

#include "runtime/config/sparse_gradients.h"
#include "runtime/core/error.h"
#include "runtime/plan/codecs/gradient_codecs.h"

namespace dstrain {
namespace {

Space space_of(OffloadTo to) {
  return to == OffloadTo::none ? Space::device : to == OffloadTo::cpu ? Space::host : Space::disk;
}

// Returns for each unit that is trained whether its optimizer state is offloaded.
std::vector<bool> offloaded_units(const Program& program, const OffloadConfig& offload) {
  double room = 0;  // elements of units whose state stays on the device
  for (const Unit& unit : program.trained_units()) room += static_cast<double>(unit.elements);
  room *= 1 - offload.ratio;
  std::vector<bool> offloaded;
  for (const Unit& unit : program.trained_units()) {
    const auto elements = static_cast<double>(unit.elements);
    offloaded.push_back(elements > room);
    if (!offloaded.back()) room -= elements;
  }
  return offloaded;
}

void assign_values(Program& program, const Job& job, const Place& place,
                   const Residency& residency) {
  int64_t in_cpu = 0;
  for (Unit& unit : program.units) {
    const int64_t held = unit.elements / divisor(residency.parameters, place, unit.axes);
    unit.spaces.values = space_of(job.offload.parameters);
    if (unit.spaces.values != Space::disk || in_cpu + held > job.offload.max_in_cpu) continue;
    unit.spaces.values = Space::host;
    in_cpu += held;
  }
}

// Returns whether the gradients of a unit's parameters have terms of several ranks.
bool has_terms(const Program& program, const Unit& unit) {
  return std::ranges::any_of(unit.parameters, [&program](int index) {
    return program.parameter(index).gradient_terms > 1;
  });
}

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
  check(program.unit(table->unit).parameters.front() == table - program.parameters.begin(),
        "the token embedding is not the first parameter of its unit");
  return table->unit;
}

}  // namespace

void assign_codecs(Program& program, const Job& job, const Residency& residency) {
  for (Unit& unit : program.units) {
    unit.codecs = residency.codecs;
    // Packed blocks are bytes already.
    if (unit.blocks != BlockFormat::none) unit.codecs.parameters = CodecKind::as_it_is;
    if (has_terms(program, unit)) unit.codecs.gradients = CodecKind::expert_terms;
  }
  const bool trains = std::ranges::any_of(program.parameters,
                                          [](const Parameter& p) { return p.gradient != kNone; });
  if (!trains || !sends_token_rows(job)) return;
  program.unit(unit_of_token_table(program)).codecs.gradients = CodecKind::token_rows;
}

Space update_space(const OffloadConfig& offload) {
  const bool device =
      offload.optimizer == OffloadTo::none || offload.optimizer_on == UpdateOn::device;
  return device ? Space::device : Space::host;
}

void assign_spaces(Program& program, const Job& job, const Place& place,
                   const Residency& residency) {
  assign_values(program, job, place, residency);
  const OffloadConfig& offload = job.offload;
  if (offload.optimizer == OffloadTo::none) return;
  const std::vector<bool> offloaded = offloaded_units(program, offload);
  for (size_t u = 0; u < offloaded.size(); ++u) {
    if (!offloaded[u]) continue;
    Unit& unit = program.units[u];
    UnitSpaces& spaces = unit.spaces;
    spaces.state = space_of(offload.optimizer);
    spaces.update = update_space(offload);
    if (spaces.update == Space::device) continue;
    spaces.sends_masters = spaces.values == Space::device && job.master_dtype == program.dtype;
    if (job.reduce != ReduceMode::micro_batch) continue;
    // A drive writes whole blocks.
    const bool in_slices = residency.gradients == Held::whole &&
                           residency.optimizer != Held::whole && place.ranks_in(unit.axes) > 1;
    spaces.gradients = job.batch.accumulation == 1 && !in_slices ? spaces.state : Space::host;
  }
}

}  // namespace dstrain
