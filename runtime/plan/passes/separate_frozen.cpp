// Frozen parameters in units of their own. What is done to a unit as a whole, as it is trained (sums, updates, optimizer
// state), is done to the units in front of them.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// What parameters have alike that are one flat buffer.
enum class UnitPart : uint8_t { trained, frozen, packed };

UnitPart part_of(const Parameter& p) {
  if (p.blocks != BlockFormat::none) return UnitPart::packed;
  return p.frozen ? UnitPart::frozen : UnitPart::trained;
}

}  // namespace

void separate_frozen(Program& program) {
  if (std::ranges::none_of(program.parameters, &Parameter::frozen)) return;
  std::array<std::vector<Unit>, 3> units;
  for (const Unit& unit : program.units) {
    std::array<std::vector<int>, 3> parameters;
    for (const int index : unit.parameters) {
      const Parameter& p = program.parameters[static_cast<size_t>(index)];
      parameters[static_cast<size_t>(part_of(p))].push_back(index);
    }
    bool named = false;  // the first part has the unit's own name
    for (const UnitPart part : {UnitPart::trained, UnitPart::frozen, UnitPart::packed}) {
      std::vector<int>& mine = parameters[static_cast<size_t>(part)];
      const bool bare = unit.parameters.empty() && part == UnitPart::trained;
      if (mine.empty() && !bare) continue;
      Unit& apart = units[static_cast<size_t>(part)].emplace_back(unit);
      if (std::exchange(named, true))
        apart.name += part == UnitPart::frozen ? ":frozen" : ":packed";
      apart.frozen = part != UnitPart::trained;
      if (part == UnitPart::packed)
        apart.blocks = program.parameters[static_cast<size_t>(mine.front())].blocks;
      apart.parameters = std::move(mine);
    }
  }
  program.units.clear();
  for (std::vector<Unit>& part : units) std::ranges::move(part, std::back_inserter(program.units));
  for (size_t u = 0; u < program.units.size(); ++u)
    for (const int index : program.units[u].parameters)
      program.parameters[static_cast<size_t>(index)].unit = static_cast<int>(u);
}

}  // namespace dstrain
