#include "runtime/plan/chunks/pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/ir/kernel_spec.h"

namespace dstrain {
namespace {

// Returns the rows in a part of the sums of a weight gradient over `rows` rows.
int64_t part_of(const RowSums& sums, const Instruction& weight_grad, int64_t rows) {
  const SpecStorage storage(sums.program, weight_grad, sums.threads);
  KernelSpec spec = storage.get();
  std::vector<TensorSpec> in(spec.in.begin(), spec.in.end());
  for (TensorSpec& operand : in) operand.shape = {rows, operand.shape[-1]};
  spec.in = in;
  return sums.library.sum_rows_part(spec);
}

bool shares(const Program& program, const std::vector<BufferId>& a,
            const std::vector<BufferId>& b) {
  return std::ranges::any_of(a, [&](BufferId one) {
    return one != kNone && std::ranges::any_of(b, [&](BufferId other) {
             return other != kNone && program.root(one) == program.root(other);
           });
  });
}

// Returns whether the order of the two matters.
bool conflict(const Program& program, const Instruction& a, const Instruction& b) {
  return shares(program, a.writes, b.writes) || shares(program, a.writes, b.reads) ||
         shares(program, a.reads, b.writes);
}

}  // namespace

int64_t piece_length(const RowSums& sums, int64_t rows, int64_t chunks) {
  const int64_t wanted = (rows + chunks - 1) / chunks;
  std::vector<int64_t> parts;
  int64_t step = sums.block;
  for (const Instruction& grad : sums.weight_grads) {
    parts.push_back(part_of(sums, grad, rows));
    step = std::lcm(step, parts.back());
  }
  if (step == 1) return wanted;
  const auto keeps_parts = [&](int64_t length) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t rest = rows % length, part = parts[i];
      if (part_of(sums, sums.weight_grads[i], length) != part ||
          (rest > part && part_of(sums, sums.weight_grads[i], rest) != part))
        return false;
    }
    return true;
  };
  for (int64_t n = std::max<int64_t>(1, wanted / step); n > 0; --n)
    if (n * step < rows && keeps_parts(n * step)) return n * step;
  return rows;
}

BufferId view_of_rows(Program& program, BufferId whole, int64_t rows, int64_t first,
                      int64_t count) {
  Buffer piece = program.at(whole);
  piece.copy_of = kNone;
  const Shape shape = piece.shape;
  int leading = 1;
  for (int64_t n = shape[0]; n < rows; ++leading) n *= shape[leading];
  piece.shape = {count};
  for (int i = leading; i < shape.rank; ++i) piece.shape.append(shape[i]);
  piece.parent = whole;
  piece.parent_offset = first * (shape.elements() / rows);
  piece.name = part_name(piece.name, first, first + count);
  return program.add_buffer(std::move(piece));
}

std::optional<MovedTogether> moved_together(const Program& program,
                                            const std::vector<size_t>& together,
                                            const std::set<BufferId>& also,
                                            const std::set<size_t>& gone) {
  const auto at = [&](size_t i) -> const Instruction& { return program.instructions[i]; };
  MovedTogether moved{together.front(), together.back(), {}, {}};
  const std::vector<BufferId> needed(also.begin(), also.end());
  std::vector<size_t> later;  // what must run behind what it conflicts with
  for (size_t i = moved.last + 1; i-- > moved.first;) {
    if (gone.contains(i)) continue;
    if (std::ranges::binary_search(together, i)) {
      later.push_back(i);
      continue;
    }
    const bool waited_for =
        shares(program, at(i).writes, needed) ||
        std::ranges::any_of(later, [&](size_t k) { return conflict(program, at(i), at(k)); });
    (waited_for ? moved.before : moved.after).push_back(i);
    if (waited_for) later.push_back(i);
  }
  std::ranges::reverse(moved.before);
  std::ranges::reverse(moved.after);
  for (const size_t i : moved.before)
    for (size_t k = moved.first; k < i; ++k)
      if (!gone.contains(k) && !std::ranges::binary_search(moved.before, k) &&
          conflict(program, at(k), at(i)))
        return std::nullopt;
  return moved;
}

}  // namespace dstrain
