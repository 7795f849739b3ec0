#include "runtime/plan/recognise/sources.h"

#include <algorithm>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr int32_t kSeveral = -2;

// Returns whether a map has the elements of its operand as they are.
bool is_copy(const Program& program, const Instruction& op) {
  const MapAttrs* const map = walking_map(op);
  return map && op.reads.size() == 1 && map->formula == Formula::input(0) &&
         !map->views[0].bounded(map->space) &&
         program.at(op.reads[0]).dtype == program.at(op.writes[0]).dtype;
}

}  // namespace

Sources::Sources(const Program& program)
    : program_(program), writers_(program.buffers.size(), -1), readers_(program.buffers.size()) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const BufferId id : program.instructions[i].writes) {
      if (id == kNone) continue;
      int32_t& writer = writers_[static_cast<size_t>(id)];
      writer = writer == -1 ? static_cast<int32_t>(i) : kSeveral;
    }
    for (const BufferId id : program.instructions[i].reads)
      if (id != kNone) ++readers_[static_cast<size_t>(id)];
  }
}

const Instruction* Sources::of(BufferId id, int32_t sublayer) const {
  if (id == kNone) return nullptr;
  const int32_t writer = writers_[static_cast<size_t>(id)];
  if (writer < 0) return nullptr;
  const Instruction& op = program_.instructions[static_cast<size_t>(writer)];
  return op.sublayer == sublayer ? &op : nullptr;
}

Sources::Copied Sources::copied(BufferId id, int32_t sublayer) const {
  const Shape flat{program_.at(id).shape.elements()};
  Copied result{id, {flat, dense_view(flat)}};
  while (const Instruction* const op = of(result.buffer, sublayer)) {
    if (!is_copy(program_, *op)) break;
    const MapAttrs& map = std::get<MapAttrs>(op->attrs);
    const auto further = composed(result.elements, {map.space, map.views[0]});
    if (!further) break;
    result = {op->reads[0], *further};
  }
  return result;
}

const MapAttrs* walking_map(const Instruction& op) {
  const auto* const map = std::get_if<MapAttrs>(&op.attrs);
  return map && !map->views.empty() && !map->detached ? map : nullptr;
}

bool is_by_row(const View& view, const Shape& space) {
  if (space.rank < 2 || space[-1] == 1) return false;
  Shape rows = space;
  --rows.rank;
  return view.strides[static_cast<size_t>(rows.rank)] == 0 && !view.bounded(space) &&
         is_dense(view, rows);
}

bool is_by_column(const View& view, const Shape& space) {
  if (view.offset != 0 || view.bounded(space) || space.rank == 0) return false;
  for (int d = 0; d < space.rank; ++d)
    if (space[d] > 1 && view.strides[static_cast<size_t>(d)] != (d + 1 == space.rank ? 1 : 0))
      return false;
  return true;
}

bool is_of_rows(const View& view, const Shape& space, int64_t width) {
  if (view.offset != 0 || view.bounded(space) || space.rank == 0) return false;
  int64_t rows = width;
  for (int d = space.rank - 1; d >= 0; --d) {
    const int64_t stride = d + 1 == space.rank ? 1 : rows;
    if (space[d] > 1 && view.strides[static_cast<size_t>(d)] != stride) return false;
    if (d + 1 < space.rank) rows *= space[d];
  }
  return space[-1] <= width;
}

Instruction in_place_of(const Instruction& op, OpKind kind, OpAttrs attrs,
                        std::vector<BufferId> reads, std::vector<BufferId> writes) {
  return {.op = kind,
          .attrs = std::move(attrs),
          .reads = std::move(reads),
          .writes = std::move(writes),
          .group = op.group,
          .sublayer = op.sublayer};
}

bool make_rows(Program& program, BufferId id, int64_t columns) {
  Buffer& buffer = program.at(id);
  if (buffer.shape[-1] == columns) return true;
  const bool is_written = std::ranges::any_of(program.instructions, [id](const Instruction& op) {
    return std::ranges::find(op.writes, id) != op.writes.end();
  });
  if (!is_written || buffer.shape.elements() % columns != 0 || !is_without_rows(program, id))
    return false;
  buffer.shape = {buffer.shape.elements() / columns, columns};
  return true;
}

}  // namespace dstrain
