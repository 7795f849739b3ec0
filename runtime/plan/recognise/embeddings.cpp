#include <algorithm>
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

// Makes embed of rows of a table that the tokens of samples name.
void look_up(Program& program, Instruction& op) {
  const auto* const take = std::get_if<TakeAttrs>(&op.attrs);
  if (!take || op.op != OpKind::take || take->indices.size() != 1) return;
  const BufferId table = op.reads[0], ids = op.reads[1], x = op.writes[0];
  const TakeAttrs::Indices& named = take->indices[0];
  const Shape &space = take->space, shape = program.at(table).shape;
  const auto input = std::ranges::find(program.inputs, ids, &ProgramInput::buffer);
  // Tokens are never negative: take counts such indices from the end, and embed does not.
  if (input == program.inputs.end() || input->role != InputRole::token_ids ||
      program.at(table).parameter < 0 || shape.rank != 2 || space.rank < 2 ||
      space[-1] != shape[1] || named.stride != shape[1] || named.size > shape[0] ||
      !is_by_column(take->table, space) || !is_by_row(named.view, space) ||
      program.at(ids).shape.elements() * shape[1] != space.elements() ||
      program.at(x).dtype != program.at(table).dtype || !make_rows(program, x, shape[1]))
    return;
  op.op = OpKind::embed;
  op.attrs = EmbedAttrs{.seq_len = program.at(ids).shape[-1]};
  op.reads = {ids, table, kNone};
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

void recognise_embeddings(Program& program) {
  for (Instruction& op : program.instructions) look_up(program, op);
  const Sources sources(program);
  for (Instruction& op : program.instructions) add_positions(program, sources, op);
}

}  // namespace dstrain
