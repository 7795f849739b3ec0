// Parameters of a layer in units of their own, because ranks do something else with these: nothing where they are frozen,
// another sum and other slices where a tensor group does not divide them, or an expert group does. What is done to a unit as a whole, as it is trained
// (sums, updates, optimizer state), is done to the units in front of the frozen ones.
#include <algorithm>
#include <utility>

#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// What parameters have alike that are one flat buffer.
enum class UnitPart : uint8_t { trained, frozen, packed };

UnitPart frozen_part(const Parameter& p) {
  if (p.blocks != BlockFormat::none) return UnitPart::packed;
  return p.frozen ? UnitPart::frozen : UnitPart::trained;
}

// Gives the parameters of each unit a unit for each of `parts` that they have, in the order of `parts`. `change(unit, part,
// first)` makes of a copy of the old unit, with these parameters, the unit of a part; `first`: of the old unit. A unit without
// parameters stays.
template <class Part, class PartOf, class Change>
void separate(Program& program, std::initializer_list<Part> parts, const PartOf& of,
              const Change& change) {
  std::vector<Unit> units;
  for (const Unit& unit : program.units) {
    bool first = true;
    for (const Part part : parts) {
      std::vector<int> mine;
      std::ranges::copy_if(unit.parameters, std::back_inserter(mine),
                           [&](int index) { return of(program.parameter(index)) == part; });
      if (mine.empty() && !(unit.parameters.empty() && part == *parts.begin())) continue;
      Unit& apart = units.emplace_back(unit);
      apart.parameters = std::move(mine);
      change(apart, part, std::exchange(first, false));
    }
  }
  program.units = std::move(units);
}

void number_units(Program& program) {
  for (size_t u = 0; u < program.units.size(); ++u)
    for (const int index : program.units[u].parameters)
      program.parameter(index).unit = static_cast<int>(u);
}

}  // namespace

void separate_frozen(Program& program) {
  if (std::ranges::none_of(program.parameters, &Parameter::frozen)) return;
  separate(program, {UnitPart::trained, UnitPart::frozen, UnitPart::packed}, frozen_part,
           [&](Unit& unit, UnitPart part, bool first) {
             if (!first) unit.name += part == UnitPart::frozen ? ":frozen" : ":packed";
             unit.frozen = part != UnitPart::trained;
             if (part == UnitPart::packed)
               unit.blocks = program.parameter(unit.parameters.front()).blocks;
           });
  std::ranges::stable_sort(program.units, {}, [](const Unit& unit) {
    return unit.blocks != BlockFormat::none ? 2 : unit.frozen ? 1 : 0;
  });
  number_units(program);
}

void separate_experts(Program& program) {
  if (std::ranges::none_of(program.parameters, &Parameter::is_of_experts)) return;
  const auto is_of_experts = [](const Parameter& p) { return p.is_of_experts; };
  separate(program, {false, true}, is_of_experts, [](Unit& unit, bool of_experts, bool) {
    if (!of_experts) return;
    unit.name += ":experts";
    unit.axes = unit.axes.without(Axis::expert);
  });
  number_units(program);
}

void separate_replicated(Program& program, const Place& place) {
  if (place.ranks_in(Axis::tensor) == 1) return;
  const auto is_replicated = [](const Parameter& p) {
    return p.part.by == TensorPart::By::nothing;
  };
  separate(program, {false, true}, is_replicated, [](Unit& unit, bool replicated, bool) {
    if (!replicated) return;
    unit.name += ":replicated";
    unit.axes = unit.axes | Axis::tensor;
  });
  number_units(program);
}

}  // namespace dstrain
