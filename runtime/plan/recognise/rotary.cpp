#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/constant_table.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// The operands of the pattern: heads, and what each of their halves is beside: the second half, and the first one.
struct RotaryOperand {
  static constexpr int kHeads = 0, kCos = 1, kSecond = 2, kFirst = 3, kSin = 4;
  static constexpr int kNumber = 5;
};

// What a map turns: the first `columns` of each head, at positions up to `seq_len`.
struct Turned {
  int64_t columns = 0, seq_len = 0;
  int64_t cos_row = 0, sin_row = 0;  // elements from a position's values to the next one's
};

bool have_same_strides(const View& a, const View& b, int rank) {
  return std::equal(a.strides.begin(), a.strides.begin() + rank, b.strides.begin());
}

// Returns what the views say of a map of rows of `row` columns; nothing if they are not those of a rotation of whole heads.
std::optional<Turned> turned(const MapAttrs& map,
                             const std::array<View, RotaryOperand::kNumber>& views, int64_t row) {
  const Shape& space = map.space;
  const int last = space.rank - 1;
  const auto d = static_cast<size_t>(last);
  const View &x = views[RotaryOperand::kHeads], &second = views[RotaryOperand::kSecond],
             &first = views[RotaryOperand::kFirst];
  Turned result{.columns = space[last]};
  const int64_t half = result.columns / 2;
  const bool halves =
      result.columns % 2 == 0 && result.columns > 0 && row % result.columns == 0 && x.offset == 0 &&
      x.strides[d] == 1 && second.offset == half && first.offset == -half && second.begin[d] <= 0 &&
      second.end[d] == half && first.begin[d] == half && first.end[d] >= result.columns &&
      have_same_strides(x, second, space.rank) && have_same_strides(x, first, space.rank) &&
      !x.bounded(space) && !views[RotaryOperand::kCos].bounded(space) &&
      !views[RotaryOperand::kSin].bounded(space) && views[RotaryOperand::kCos].offset == 0 &&
      views[RotaryOperand::kSin].offset == 0 && views[RotaryOperand::kCos].strides[d] == 1 &&
      views[RotaryOperand::kSin].strides[d] == 1;
  if (!halves) return std::nullopt;
  for (int i = 0; i < last; ++i)
    if (second.bounds(i, space[i]) || first.bounds(i, space[i])) return std::nullopt;
  // One dimension is positions.
  for (int i = 0; i < last; ++i) {
    const int64_t by_cos = views[RotaryOperand::kCos].strides[static_cast<size_t>(i)];
    const int64_t by_sin = views[RotaryOperand::kSin].strides[static_cast<size_t>(i)];
    if (space[i] == 1 || (by_cos == 0 && by_sin == 0)) continue;
    if (result.seq_len > 0 || x.strides[static_cast<size_t>(i)] != row || by_cos == 0 ||
        by_sin == 0)
      return std::nullopt;
    result.seq_len = space[i];
    result.cos_row = by_cos;
    result.sin_row = by_sin;
  }
  if (result.seq_len == 0) return std::nullopt;
  // The others are samples, and heads of a row.
  int64_t end = result.columns;
  for (int i = 0; i < last; ++i) {
    const int64_t stride = x.strides[static_cast<size_t>(i)];
    if (space[i] == 1 || stride == 0 || stride % (row * result.seq_len) == 0) continue;
    if (stride == row && views[RotaryOperand::kCos].strides[static_cast<size_t>(i)] != 0) continue;
    if (stride < 0 || stride % result.columns != 0) return std::nullopt;
    end += (space[i] - 1) * stride;
  }
  if (end > row) return std::nullopt;
  return result;
}

// Returns the attributes whose angles the tables have. PyTorch's tables have frequencies that are rounded to f32.
std::optional<RotaryAttrs> rotation_of(const Turned& turned, const ConstantTable& cos,
                                       const ConstantTable& sin) {
  const int64_t pairs = turned.columns / 2;
  const auto elements = [&](int64_t by) { return (turned.seq_len - 1) * by + turned.columns; };
  if (cos.size() < elements(turned.cos_row) || sin.size() < elements(turned.sin_row) ||
      turned.seq_len < 2)
    return std::nullopt;
  const auto frequency = [&](int64_t pair) {
    return std::atan2(sin.at(turned.sin_row + pair), cos.at(turned.cos_row + pair));
  };
  RotaryAttrs attrs{.head_size = turned.columns, .seq_len = turned.seq_len};
  // The longest part of a turn for each position is 1 radian, or where samples are longer a part of it.
  constexpr double kRounding = 1e-6;
  const double first = frequency(0), least = frequency(pairs - 1);
  if (!(first > 0) || !(least > 0)) return std::nullopt;
  if (std::abs(first - 1) > kRounding) {
    attrs.kind = RotaryKind::linear;
    attrs.factor = std::strtod(fmt::format("{:.6g}", 1 / first).c_str(), nullptr);
  }
  if (pairs > 1) {
    const double exponent =
        static_cast<double>(turned.columns) / static_cast<double>(2 * (pairs - 1));
    const double theta = std::pow(first / least, exponent);
    attrs.theta = std::strtod(fmt::format("{:.6g}", theta).c_str(), nullptr);
  }
  if (!rotary_problem(attrs).empty()) return std::nullopt;
  const std::vector<double> frequencies = rotary_frequencies(attrs);
  for (int64_t position = 0; position < turned.seq_len; ++position)
    for (int64_t column = 0; column < turned.columns; ++column) {
      const double angle =
          static_cast<double>(position) * frequencies[static_cast<size_t>(column % pairs)];
      const double error = kRounding * (1 + angle);
      if (!(std::abs(cos.at(position * turned.cos_row + column) - std::cos(angle)) <= error) ||
          !(std::abs(sin.at(position * turned.sin_row + column) - std::sin(angle)) <= error))
        return std::nullopt;
    }
  return attrs;
}

// Returns the instruction that turns the rows that a map reads, and a copy of its result in the place of the map; nothing if the
// map does not turn any.
std::vector<Instruction> rotation_in(Program& program, const Instruction& op) {
  const MapAttrs* const map = walking_map(op);
  if (!map || op.reads.size() < 3) return {};
  const Formula pattern =
      Formula::input(RotaryOperand::kHeads) * Formula::input(RotaryOperand::kCos) +
      (-Formula::input(RotaryOperand::kSecond) + Formula::input(RotaryOperand::kFirst)) *
          Formula::input(RotaryOperand::kSin);
  const std::optional<Matched> found = match(pattern, map->formula);
  if (!found) return {};
  std::array<View, RotaryOperand::kNumber> views;
  std::array<BufferId, RotaryOperand::kNumber> buffers{};
  for (int role = 0; role < RotaryOperand::kNumber; ++role) {
    const int operand = found->operand(role);
    views[static_cast<size_t>(role)] = map->views[static_cast<size_t>(operand)];
    buffers[static_cast<size_t>(role)] = op.reads[static_cast<size_t>(operand)];
  }
  const BufferId x = buffers[RotaryOperand::kHeads];
  const Buffer rows = program.at(x);
  if (buffers[RotaryOperand::kSecond] != x || buffers[RotaryOperand::kFirst] != x ||
      rows.dtype != program.at(op.writes[0]).dtype)
    return {};
  const std::optional<Turned> heads = turned(*map, views, rows.shape[-1]);
  const std::optional<ConstantTable> cos = ConstantTable::of(program, buffers[RotaryOperand::kCos]),
                                     sin = ConstantTable::of(program, buffers[RotaryOperand::kSin]);
  if (!heads || !cos || !sin || rows.shape.elements() % (rows.shape[-1] * heads->seq_len) != 0)
    return {};
  const std::optional<RotaryAttrs> attrs = rotation_of(*heads, *cos, *sin);
  if (!attrs) return {};
  const BufferId y = program.add_buffer({.name = program.at(op.writes[0]).name + ".rotated",
                                         .shape = rows.shape,
                                         .dtype = rows.dtype});
  return {in_place_of(op, OpKind::rotary, *attrs, {x}, {y}),
          in_place_of(op, OpKind::map,
                      MapAttrs{Formula::input(0), map->space, {views[RotaryOperand::kHeads]}}, {y},
                      op.writes)};
}

}  // namespace

void recognise_rotary(Program& program) {
  replace_each(program, [&](const Instruction& op) { return rotation_in(program, op); });
}

}  // namespace dstrain
