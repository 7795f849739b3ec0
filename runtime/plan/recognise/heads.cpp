#include <array>
#include <optional>
#include <vector>

#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// Rows of heads: those of a buffer, from column `first` on.
struct HeadRows {
  BufferId buffer = kNone;
  int64_t row = 0;  // columns of a row of the buffer
  int64_t first = 0;
  int64_t heads = 0;
};

// Returns where `heads` heads of a buffer, of which neighbours may be the same, are rows of tokens.
std::optional<HeadRows> rows_of_heads(const Program& program, const Sources::Copied& copied,
                                      int64_t rows, int64_t heads, int64_t width) {
  const Buffer& buffer = program.at(copied.buffer);
  const int64_t row = buffer.shape[-1];
  if (row <= 0 || buffer.shape.elements() != rows * row) return std::nullopt;
  for (int64_t apart = 1; apart <= heads; ++apart) {
    if (heads % apart != 0) continue;
    const Shape space{rows, apart, heads / apart, width};
    const std::optional<View> view = reshaped(copied.elements.view, copied.elements.space, space);
    if (!view) continue;
    const auto by = [&](int d) {
      return space[d] == 1 ? -1 : view->strides[static_cast<size_t>(d)];
    };
    const auto is = [&](int d, int64_t stride) { return by(d) == -1 || by(d) == stride; };
    // Heads that serve several are the fewest that there can be.
    if (is(0, row) && is(1, width) && is(2, 0) && is(3, 1) && view->offset + apart * width <= row)
      return HeadRows{copied.buffer, row, view->offset, apart};
  }
  return std::nullopt;
}

// Returns whether queries, keys and values are the columns of rows of all three.
bool is_one_row(const std::array<HeadRows, 3>& parts, int64_t columns) {
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].buffer != parts[0].buffer || parts[i].row != 3 * columns ||
        parts[i].first != static_cast<int64_t>(i) * columns || parts[i].heads != parts[0].heads)
      return false;
  return true;
}

void read_in_place(Program& program, const Sources& sources, Instruction& op) {
  constexpr size_t kParts = 3;
  auto* const attrs = std::get_if<AttentionAttrs>(&op.attrs);
  if (!attrs || op.op != OpKind::attention || op.reads.size() < kParts) return;
  const Shape shape = program.at(op.writes[0]).shape;
  const int64_t columns = shape[-1], rows = shape.elements() / columns;
  const int64_t width = columns / attrs->heads;
  const int64_t kv_heads = attrs->kv_heads > 0 ? attrs->kv_heads : attrs->heads;
  std::array<HeadRows, kParts> parts;
  for (size_t i = 0; i < kParts; ++i) {
    const int64_t heads = i == 0 ? attrs->heads : kv_heads;
    const auto found =
        rows_of_heads(program, sources.copied(op.reads[i], op.sublayer), rows, heads, width);
    parts[i] = found.value_or(HeadRows{op.reads[i], heads * width, 0, heads});
  }
  // Heads that were queries' own must stay so, and keys and values have as many.
  const bool packed = parts[0].heads == attrs->heads && kv_heads == attrs->heads &&
                      attrs->window == 0 && attrs->softcap == 0 && attrs->scale == 0 &&
                      is_one_row(parts, columns);
  if (packed) {
    op.reads.erase(op.reads.begin() + 1, op.reads.begin() + kParts);
    op.reads[0] = parts[0].buffer;
    attrs->kv_heads = 0;
    return;
  }
  const auto is_whole = [&](const HeadRows& part) {
    return part.first == 0 && part.row == part.heads * width;
  };
  if (is_whole(parts[0]) && parts[0].heads == attrs->heads) op.reads[0] = parts[0].buffer;
  if (!is_whole(parts[1]) || !is_whole(parts[2]) || parts[1].heads != parts[2].heads) return;
  op.reads[1] = parts[1].buffer;
  op.reads[2] = parts[2].buffer;
  attrs->kv_heads = parts[1].heads;
}

}  // namespace

void recognise_heads(Program& program) {
  const Sources sources(program);
  for (Instruction& op : program.instructions) read_in_place(program, sources, op);
}

}  // namespace dstrain
