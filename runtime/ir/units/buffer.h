// Buffers: the pieces of memory that instructions read and write, before they have an address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/tensor.h"

namespace dstrain {

using BufferId = int32_t;
inline constexpr BufferId kNone = -1;  // an absent operand

// What the memory of a buffer is used for. Each class is a row of the memory table of `dstrain plan`.
enum class MemoryClass : uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  packed,
  workspace
};
inline constexpr int kMemoryClasses = 7;
std::string_view name_of(MemoryClass memory);

// Elements [begin, end) of a unit.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Returns the elements that are in both; a range of negative size if there are none.
Range common(Range a, Range b);

// Where the memory of a buffer is. Where the device is the CPU, the host's memory is an arena of its own all the same.
enum class Space : uint8_t {
  device,
  host,  // pinned, where the device has memory of its own
  disk,
};
inline constexpr int kSpaces = 3;
std::string_view name_of(Space space);

// How long the content of a buffer is needed, and so when its memory can be used for another buffer.
enum class Lifetime : uint8_t {
  persistent,  // for the whole run; every plan of the run finds it by name
  step,        // from the first use in a step to the last one, whatever micro-batch has it
  micro,       // from first to last use within one micro-batch
};

// What the values of a buffer are for training, wherever they lie. Views and copies have the role of what they are of.
enum class BufferRole : uint8_t {
  other,
  parameters,       // in the run's dtype, or packed: held, gathered
  masters,          // the weights that the optimizer updates, where these are not the parameters
  optimizer_state,  // of the elements that this rank updates
  gradients,        // of parameters: of a micro-batch, of a step, on their way
  losses,           // sums of losses and of metrics
  square_sums,      // of the gradients: a value for each unit
  codec_errors,     // what codecs have lost: values for each unit
};

// A piece of memory that instructions read and write: its name, shape, dtype and use. The plan gives it an
// address. Names are for people, and for what looks up a whole name: nothing is told by how one begins or ends.
struct Buffer {
  std::string name{};
  Shape shape{};
  DType dtype = DType::f32;
  MemoryClass memory = MemoryClass::activations;
  Lifetime lifetime = Lifetime::micro;
  BufferId parent = kNone;  // of a view: its elements begin at parent_offset of the parent
  int64_t parent_offset = 0;
  bool per_micro = false;  // one copy for every micro-batch of the step (inputs)
  int parameter = -1;      // index of the parameter whose value this is
  // The same of the whole model, also where the value is another stage's and this is a copy of it.
  int model_parameter = -1;
  // The buffer whose values these are, element by element: computed once more, brought from another space, rounded.
  BufferId copy_of = kNone;
  BufferRole role = BufferRole::other;
  int gathered_unit = -1;     // the unit whose parameters are gathered here: its index
  BufferId unpacked = kNone;  // of parameters that are gathered packed: what they are unpacked to
  bool shared = false;        // peers read it, so it is in memory registered with the communicator
  Space space = Space::device;  // of a view: its root's counts

  int64_t bytes() const { return shape.elements() * size_of(dtype); }
};

}  // namespace dstrain
