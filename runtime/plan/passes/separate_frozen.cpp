// Frozen parameters in units of their own. What is done to a unit as a whole, as it is trained (sums, updates, optimizer
// state), is done to the units in front of them.
#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/plan/passes/passes.h"

namespace dstrain {

void separate_frozen(Program& program) {
  if (std::ranges::none_of(program.parameters, &Parameter::frozen)) return;
  std::vector<Unit> trained, frozen;
  for (Unit& unit : program.units) {
    Unit apart = unit;
    const auto is_frozen = [&program](int index) {
      return program.parameters[static_cast<size_t>(index)].frozen;
    };
    std::erase_if(unit.parameters, is_frozen);
    std::erase_if(apart.parameters, [&](int index) { return !is_frozen(index); });
    const bool whole = unit.parameters.empty() && !apart.parameters.empty();
    if (!whole) trained.push_back(std::move(unit));
    if (apart.parameters.empty()) continue;
    if (!whole) apart.name += ":frozen";
    apart.frozen = true;
    frozen.push_back(std::move(apart));
  }
  program.units = std::move(trained);
  std::ranges::move(frozen, std::back_inserter(program.units));
  for (size_t u = 0; u < program.units.size(); ++u)
    for (const int index : program.units[u].parameters)
      program.parameters[static_cast<size_t>(index)].unit = static_cast<int>(u);
}

}  // namespace dstrain
