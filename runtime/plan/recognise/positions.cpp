#include <optional>
#include <vector>

#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// Returns the tokens of a sample, if a view of a space (..., tokens, columns) reads a table of positions from its first row
// on, the same for all samples.
std::optional<int64_t> tokens_of(const View& view, const Shape& space) {
  if (space.rank < 2 || view.offset != 0 || view.bounded(space)) return std::nullopt;
  const auto stride = [&](int d) {
    const int dimension = space.rank + d;
    return view.strides[static_cast<size_t>(dimension)];
  };
  if (stride(-1) != 1 || stride(-2) != space[-1]) return std::nullopt;
  for (int d = -3; d >= -space.rank; --d)
    if (space[d] > 1 && stride(d) != 0) return std::nullopt;
  return space[-2];
}

void add_positions(Program& program, const Sources& sources, Instruction& op) {
  const MapAttrs* const map = walking_map(op);
  if (!map || op.reads.size() != 2) return;
  const Formula a = Formula::input(0), b = Formula::input(1);
  if (map->formula != a + b && map->formula != b + a) return;
  for (const size_t tokens : {0U, 1U}) {
    const Instruction* const embed = sources.of(op.reads[tokens], op.sublayer);
    const BufferId table = op.reads[1 - tokens];
    const auto rows = tokens_of(map->views[1 - tokens], map->space);
    constexpr size_t kPositions = 2;
    const bool has_positions = embed && embed->op == OpKind::embed &&
                               embed->reads.size() > kPositions &&
                               embed->reads[kPositions] != kNone;
    if (!embed || embed->op != OpKind::embed || has_positions || !rows ||
        program.at(table).parameter < 0 || program.at(table).shape[-1] != map->space[-1] ||
        program.at(table).dtype != program.at(op.writes[0]).dtype ||
        !is_dense(map->views[tokens], map->space) ||
        program.at(embed->reads[0]).shape.elements() % *rows != 0)
      continue;
    op.op = OpKind::embed;
    op.attrs = EmbedAttrs{.seq_len = *rows};
    op.reads = {embed->reads[0], embed->reads[1], table};
    return;
  }
}

}  // namespace

void recognise_positions(Program& program) {
  const Sources sources(program);
  for (Instruction& op : program.instructions) add_positions(program, sources, op);
}

}  // namespace dstrain
