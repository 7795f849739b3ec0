// RankRecord: what one rank's steps have computed, for comparison with other runs: a checksum of every operand of every
// instruction, the gradients, and the state after each step. It travels between processes as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ir/units/buffer.h"

namespace dstrain {

// What is known of a name that is a buffer's: the index of the name of the buffer that it is a copy of, or its own, and
// what its values are.
struct NamedValue {
  int32_t original = 0;
  BufferRole role = BufferRole::other;
};

// How an instruction brings values from one place to another.
enum class Moves : uint8_t {
  nothing,  // it computes
  values,   // a gather, a copy
  sends,    // a message to another stage
  receives,
};

// An operand: the index of its name and of the name of the buffer that it is a part of, and a checksum of its values.
// `elements` is 0 where the values are unknown: on a disk.
struct RecordedValue {
  int32_t name = 0, root = 0;
  int64_t elements = 0;
  uint64_t checksum = 0;
};

// An instruction that was carried out. Its values are `inputs` operands from `first` on, and then `outputs`.
struct RecordedIssue {
  int32_t step = 0;
  int32_t title = 0;  // index of the name: "linear blocks.0"
  int32_t micro = 0;
  uint8_t at_end = 0;  // belongs to the end of the step
  Moves moves = Moves::nothing;
  uint8_t computes = 0;  // a kernel, or the loading of a batch
  uint8_t sums = 0;      // adds values of several ranks
  int32_t inputs = 0, outputs = 0;
  int64_t first = 0;
};

// Elements [begin, begin + count) of a tensor after a step, or of its gradient in the step (slot "gradient").
struct RecordedPiece {
  int32_t step = 0;
  int32_t name = 0, slot = 0;
  int32_t root = 0;  // the name of the buffer that has them
  int64_t begin = 0, count = 0;
  int64_t first = 0;  // index of the first value
  int64_t at = 0;     // how many issues were recorded before
};

struct RecordedStep {
  int64_t step = 0;
  double loss = 0;  // mean over the targets
  double norm = 0;
  int64_t skipped = 0;
  int64_t sent = 0, planned = 0;  // bytes by ring algorithms: counted, and by the plan
};

// The largest element of what an instruction has added to a parameter's gradient in the first step.
struct RecordedTerm {
  int32_t name = 0;  // of the parameter
  int32_t unused = 0;
  double largest = 0;
};

inline constexpr std::string_view kGradientSlot = "gradient";

struct RankRecord {
  std::vector<std::string> names;
  std::vector<NamedValue> named;  // for each name
  std::vector<RecordedIssue> issues;
  std::vector<RecordedValue> values;
  std::vector<RecordedPiece> pieces;
  std::vector<float> floats;
  std::vector<RecordedStep> steps;
  std::vector<RecordedTerm> terms;
  std::string error;  // why the steps ended early; empty: they did not
  std::string fault;  // what a seeded fault did on this rank; empty: nothing

  const std::string& name(int32_t index) const { return names[static_cast<size_t>(index)]; }
  // Returns the name of the value that the buffer with a name is a copy of, or its own.
  const std::string& original(int32_t index) const {
    return name(named[static_cast<size_t>(index)].original);
  }
  BufferRole role(int32_t index) const { return named[static_cast<size_t>(index)].role; }
  // Adds a name. Returns its index. `copy_of`: the index of another one, or -1.
  int32_t add_name(const std::string& text, BufferRole role = BufferRole::other,
                   int32_t copy_of = -1);

  // Adds what the same rank has recorded later, in another process.
  void append(const RankRecord& later);

  std::string to_bytes() const;
  // Throws RunError if the bytes are not those of a record.
  static RankRecord from_bytes(std::string_view bytes);
};

}  // namespace dstrain
