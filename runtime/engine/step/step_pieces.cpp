#include "runtime/engine/step/step_pieces.h"

#include <algorithm>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

const Instruction& op_at(const Plan& plan, size_t i) {
  return plan.program.instructions[static_cast<size_t>(plan.order[i].instruction)];
}

// Returns the first issue from `body` on that belongs to a micro-batch; 0 has what the step begins with, too.
size_t begin_of(const Plan& plan, size_t body, int32_t micro) {
  const auto first = plan.order.begin() + static_cast<std::ptrdiff_t>(body);
  const auto it =
      std::find_if(first, plan.order.end(), [&](const Issue& i) { return i.micro == micro; });
  return static_cast<size_t>(it - plan.order.begin());
}

bool same_instructions(const Plan& plan, size_t begin, size_t end, size_t other) {
  for (size_t i = begin; i < end; ++i, ++other)
    if (other >= plan.order.size() || plan.order[i].instruction != plan.order[other].instruction)
      return false;
  return true;
}

bool has_copies(const Plan& plan, BufferId id) {
  return id != kNone && plan.address[static_cast<size_t>(id)].copies > 1;
}

// The piece of micro-batches [1, last); without launches if one graph cannot stand for all of them.
StepPiece between(const Plan& plan, size_t body, int32_t last) {
  StepPiece piece{begin_of(plan, body, 1), begin_of(plan, body, 2), last - 1, 1};
  for (int32_t micro = 2; micro < last; ++micro) {
    const size_t begin = begin_of(plan, body, micro), next = begin_of(plan, body, micro + 1);
    if (next - begin != piece.end - piece.begin ||
        !same_instructions(plan, piece.begin, piece.end, begin))
      piece.launches = 0;
  }
  for (size_t i = piece.begin; i < piece.end; ++i) {
    const Instruction& op = op_at(plan, i);
    for (const BufferId id : op.writes)
      if (has_copies(plan, id)) piece.launches = 0;
    for (const BufferId id : op.reads)
      if (has_copies(plan, id) && std::ranges::find(piece.moved, id) == piece.moved.end())
        piece.moved.push_back(id);
  }
  return piece;
}

}  // namespace

std::vector<StepPiece> step_pieces(const Plan& plan, size_t body) {
  std::vector<StepPiece> pieces;
  const auto last = static_cast<int32_t>(plan.micro_batches - 1);
  if (last >= 3) {
    StepPiece middle = between(plan, body, last);
    if (middle.launches > 0) {
      const size_t of_last = begin_of(plan, body, last);
      pieces.push_back({body, middle.begin});
      pieces.push_back(std::move(middle));
      pieces.push_back({of_last, plan.order.size(), 1, last});
    }
  }
  if (pieces.empty()) pieces.push_back({body, plan.order.size()});
  std::vector<int32_t> posted(static_cast<size_t>(plan.channels));
  size_t at = 0;
  for (StepPiece& piece : pieces) {
    for (; at < piece.end; ++at)
      if (is_posted(op_at(plan, at).op)) ++posted[static_cast<size_t>(op_at(plan, at).channel)];
    piece.posted = posted;
  }
  return pieces;
}

}  // namespace dstrain
