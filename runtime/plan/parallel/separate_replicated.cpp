#include <array>
#include <utility>
#include <vector>

#include "runtime/plan/parallel/split_layers.h"

namespace dstrain {

void separate_replicated(Program& program, const Place& place) {
  if (place.ranks_in(Axis::tensor) == 1) return;
  std::vector<Unit> units;
  for (const Unit& unit : program.units) {
    std::array<std::vector<int>, 2> parameters;  // divided, and replicated
    for (const int index : unit.parameters) {
      const bool replicated =
          program.parameters[static_cast<size_t>(index)].part.by == TensorPart::By::nothing;
      parameters[replicated ? 1 : 0].push_back(index);
    }
    for (const bool replicated : {false, true}) {
      std::vector<int>& mine = parameters[replicated ? 1 : 0];
      if (mine.empty() && (replicated || !unit.parameters.empty())) continue;
      Unit& apart = units.emplace_back(unit);
      if (replicated) {
        apart.name += ":replicated";
        apart.axes = unit.axes | Axis::tensor;
      }
      apart.parameters = std::move(mine);
    }
  }
  program.units = std::move(units);
  for (size_t u = 0; u < program.units.size(); ++u)
    for (const int index : program.units[u].parameters)
      program.parameters[static_cast<size_t>(index)].unit = static_cast<int>(u);
}

}  // namespace dstrain
