// What the axes of an op's operands mean, as its rule says: which operands have an axis in common, and what the op does
// along it. Passes that divide operations among ranks, or into pieces, ask this and not which op it is.
//
// A rule writes the axes of its operands, in their order, as a text:
//   linear:      "row channel, feature channel, feature -> row feature"
//   layer_norm:  "row channel!, channel, channel -> row channel, row, row"
// Operands are separated by commas; "-" is one without axes. The last axis of an operand is that of its last dimension;
// the first one is that of all dimensions before it, which are one in memory. `!`: the op needs the axis whole. `*3`: the
// last dimension has so many sections, one after the other, and each of them has the axis.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {

enum class OperandAxis : uint8_t {
  row,       // the tokens or samples of a micro-batch
  sample,    // the samples of a micro-batch
  position,  // the positions of a sample
  head,      // heads of attention, each of several columns
  channel,   // of what an op reads
  feature,   // of what a product writes
  classes,   // "class": the tokens of a vocabulary, or what a loss tells apart
  expert,    // of a mixture
  slot,      // the experts that a row has chosen
  routed,  // the rows that experts have: each row of the micro-batch for each of its slots, in the order of experts
};
inline constexpr int kOperandAxes = 10;

// What an op does along an axis.
enum class Along : uint8_t {
  absent,  // no operand has it
  mapped,  // each index by itself: from some indices of its operands an op makes these of its results
  contracted,  // adds over it: from some indices of its operands an op makes a part of a sum
  whole,       // from some indices of its operands it makes nothing of use
  made,        // its results alone have it
};

// The axes of one operand.
struct OperandAxes {
  static constexpr int kMost = 3;
  std::array<OperandAxis, kMost> axes{};
  int count = 0;
  int64_t sections = 1;  // of the last dimension
  // Indices of the last axis, each of equally many elements; 0: as many as the last dimension has elements.
  int64_t indices = 0;

  constexpr bool has(OperandAxis axis) const {
    for (int i = 0; i < count; ++i)
      if (axes[static_cast<size_t>(i)] == axis) return true;
    return false;
  }
  // Returns whether the operand is a matrix with rows of the first axis and columns of the second one.
  constexpr bool is(OperandAxis rows, OperandAxis columns) const {
    return count == 2 && axes[0] == rows && axes[1] == columns;
  }
  // Returns whether the operand has rows and columns, and the rows are those of the micro-batch.
  constexpr bool has_columns() const { return count == 2 && axes[0] == OperandAxis::row; }
  // The axis of the last dimension of an operand that has axes.
  constexpr OperandAxis last() const { return axes[static_cast<size_t>(count - 1)]; }
};

// The axes of all operands of an instruction.
class OpAxes {
 public:
  static constexpr size_t kMostReads = 7, kMostWrites = 4;

  constexpr OpAxes() = default;
  // Takes the text of a rule. Throws InternalError, which ends compilation, if the text is no such text.
  consteval OpAxes(const char* text) {
    std::string_view rest = text;
    const size_t arrow = rest.find("->");
    if (arrow == std::string_view::npos) throw InternalError("operands without results");
    read_list(rest.substr(0, arrow), reads_.data(), kMostReads);
    const size_t results = read_list(rest.substr(arrow + 2), writes_.data(), kMostWrites);
    for (int i = 0; i < kOperandAxes; ++i)
      along_[static_cast<size_t>(i)] = find_along(OperandAxis(i), results);
  }

  // Returns the axes of an operand; none for one that the text does not have.
  constexpr OperandAxes read(size_t i) const { return i < kMostReads ? reads_[i] : OperandAxes{}; }
  constexpr OperandAxes write(size_t i) const {
    return i < kMostWrites ? writes_[i] : OperandAxes{};
  }
  constexpr Along along(OperandAxis axis) const { return along_[static_cast<size_t>(axis)]; }
  // Returns whether any operand has axes.
  constexpr bool any() const {
    for (const Along along : along_)
      if (along != Along::absent) return true;
    return false;
  }
  // Returns the same with another operand that is read, along whose axes the op does the same as along those of others.
  constexpr OpAxes with_read(size_t read, const OperandAxes& axes) const {
    OpAxes same = *this;
    same.reads_[read] = axes;
    return same;
  }
  // Returns the same with the number of indices of a read operand's last axis.
  constexpr OpAxes with_indices(size_t read, int64_t indices) const {
    OpAxes same = *this;
    same.reads_[read].indices = indices;
    return same;
  }

 private:
  static consteval OperandAxis axis_of(std::string_view word) {
    constexpr std::array<std::string_view, kOperandAxes> names = {
        "row",     "sample", "position", "head", "channel",
        "feature", "class",  "expert",   "slot", "routed"};
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == word) return OperandAxis(i);
    throw InternalError("there is no axis of this name");
  }

  // Returns the number of operands.
  consteval size_t read_list(std::string_view list, OperandAxes* operands, size_t most) {
    size_t count = 0;
    while (!list.empty()) {
      if (count == most) throw InternalError("more operands than an op has");
      const size_t end = list.find(',');
      read_operand(list.substr(0, end), operands[count++]);
      list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    }
    return count;
  }

  consteval void read_operand(std::string_view text, OperandAxes& operand) {
    while (!text.empty()) {
      const size_t end = text.find(' ');
      std::string_view word = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (word.empty() || word == "-") continue;
      if (operand.count == OperandAxes::kMost) throw InternalError("more axes than an operand has");
      if (const size_t star = word.find('*'); star != std::string_view::npos) {
        operand.sections = word[star + 1] - '0';
        word = word.substr(0, star);
      }
      const bool whole = word.ends_with('!');
      if (whole) word.remove_suffix(1);
      const OperandAxis axis = axis_of(word);
      operand.axes[static_cast<size_t>(operand.count++)] = axis;
      if (whole) along_[static_cast<size_t>(axis)] = Along::whole;
    }
  }

  consteval Along find_along(OperandAxis axis, size_t results) const {
    if (along(axis) == Along::whole) return Along::whole;
    bool read = false, written = false, everywhere = true;
    for (const OperandAxes& operand : reads_) read = read || operand.has(axis);
    for (size_t i = 0; i < results; ++i) {
      written = written || writes_[i].has(axis);
      everywhere = everywhere && writes_[i].has(axis);
    }
    if (!read) return written ? Along::made : Along::absent;
    return everywhere ? Along::mapped : Along::contracted;
  }

  std::array<OperandAxes, kMostReads> reads_{};
  std::array<OperandAxes, kMostWrites> writes_{};
  std::array<Along, kOperandAxes> along_{};
};

// Returns whether an op multiplies rows by a matrix: it adds over the columns of its first operand, and makes others of
// them, which the matrix has as well.
constexpr bool is_product(const OpAxes& axes) {
  const OperandAxes rows = axes.read(0), matrix = axes.read(1), result = axes.write(0);
  return rows.has_columns() && result.has_columns() && matrix.count == 2 &&
         axes.along(OperandAxis::row) == Along::mapped &&
         axes.along(rows.last()) == Along::contracted && matrix.has(rows.last()) &&
         matrix.has(result.last());
}

// Returns whether an op works on each row and each column by itself: of all operands that have rows and columns.
constexpr bool maps_elements(const OpAxes& axes) {
  if (!axes.write(0).has_columns() || axes.along(OperandAxis::row) != Along::mapped) return false;
  for (size_t i = 0; i < OpAxes::kMostReads; ++i)
    if (axes.read(i).has_columns() && axes.along(axes.read(i).last()) != Along::mapped)
      return false;
  for (size_t i = 0; i < OpAxes::kMostWrites; ++i)
    if (axes.write(i).has_columns() && axes.along(axes.write(i).last()) != Along::mapped)
      return false;
  return true;
}

}  // namespace dstrain
