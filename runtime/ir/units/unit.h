// Units: flat ranges of parameters that are reduced, sharded, gathered and updated as a whole, with the buffers of their
// state.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/ir/units/axes.h"
#include "runtime/ir/units/buffer.h"

namespace dstrain {

// How an optimizer updates a parameter. It may keep other state for each form.
enum class UpdateForm : uint8_t {
  elements,  // each element by itself
  matrix,    // as a whole matrix (Muon)
  blocks,    // each element by itself, with state that is packed in blocks of elements
};

// A set of forms.
class UpdateForms {
 public:
  constexpr UpdateForms(std::initializer_list<UpdateForm> forms) {
    for (const UpdateForm form : forms) bits_ |= bit(form);
  }
  constexpr bool has(UpdateForm form) const { return (bits_ & bit(form)) != 0; }

 private:
  static constexpr unsigned bit(UpdateForm form) { return 1U << static_cast<unsigned>(form); }
  unsigned bits_ = 0;
};
inline constexpr UpdateForms kAllForms{UpdateForm::elements, UpdateForm::matrix,
                                       UpdateForm::blocks};

// The share of a unit that a rank holds: all of it, the slices of its replica group, or its own slice.
enum class Held : uint8_t { whole, shard, slice };

// A buffer with a value for each element of a unit, or for some of them, or for each block of elements.
struct UnitBuffer {
  BufferId id = kNone;  // kNone: the unit has none, or no pass has made it yet
  Held held = Held::whole;
  Axes divided{};  // along which ranks divide the unit; none, if it is held whole
  // Set for optimizer state that only parameters of some forms have (Parameter::form): the ranges of the unit that the
  // buffer has of its share, one after the other.
  std::optional<std::vector<Range>> partial{};
  int64_t block = 1;  // consecutive elements that have one value

  // Returns how many values there are for `elements` consecutive elements, the first of which begins a block.
  int64_t values(int64_t elements) const { return (elements + block - 1) / block; }
};

// The buffers that have the state of a unit.
struct UnitBuffers {
  struct Slot {
    std::string name{};
    UnitBuffer values{};
    UpdateForms forms = kAllForms;  // of the parameters that have it
    // Where ranks gather the slot: the values of all ranks, of which `values` is a part.
    BufferId gathered = kNone;
  };
  // The parameters have these values, in the run's dtype.
  UnitBuffer values{};
  // The sum of a step's gradients.
  UnitBuffer gradients{};
  // The gradients of a micro-batch, where ranks add these, or where sums have 16 bits.
  UnitBuffer micro_gradients{};
  // The gradients in the dtype in which they are sent.
  UnitBuffer wire{};
  // Where the gradients leave the device: the sum of their squares, in the host's memory (f64, 1).
  BufferId host_squares = kNone;
  // The packed parameters of the rank's replica group, which replicas exchange in each step (CodecKind::int8_blocks).
  BufferId packed = kNone;
  // The weights that the optimizer updates, where these are not `values`.
  UnitBuffer separate_master{};
  // The state that the optimizer keeps.
  std::vector<Slot> slots{};
  // The direction in which the weights are moved, where the optimizer computes that first.
  UnitBuffer direction{};

  // Returns the buffer of the weights that the optimizer updates.
  const UnitBuffer& master() const {
    return separate_master.id == kNone ? values : separate_master;
  }
  // Returns the optimizer's slot with this name; null if it has none.
  const Slot* slot(std::string_view name) const {
    for (const Slot& slot : slots)
      if (slot.name == name) return &slot;
    return nullptr;
  }
};

// Where the tensors of a unit live, and where it is updated.
struct UnitSpaces {
  Space values = Space::device;
  Space gradients = Space::device;  // their sums
  Space state = Space::device;      // masters and optimizer state
  Space update = Space::device;     // where the optimizer works: on the device, or on the host
  // The masters, which have the parameters' dtype, are not the parameters themselves: when the host has updated them
  // they are copied to those of the device.
  bool sends_masters = false;
};

// How a tensor of a unit travels among ranks.
enum class CodecKind : uint8_t {
  as_it_is,      // in the run's dtype, or the wire's
  int8_blocks,   // gathered parameters (ZeRO++'s qwZ)
  int4_blocks,   // gradients, and the sums of groups of ranks (ZeRO++'s qgZ, LoCo)
  token_rows,    // the token embedding's gradient: the rows of a micro-batch's tokens
  expert_terms,  // gradients of experts that ranks divide: terms of several ranks
  low_rank,      // gradients of all units together: two factors of each (PowerSGD)
  not_sent,      // gradients stay each rank's own; the optimizer may send signs
};

// The codecs of a unit's transfers: a column of the state table (Residency).
struct UnitCodecs {
  CodecKind parameters = CodecKind::as_it_is;  // on their way to ranks that compute with them
  CodecKind gradients = CodecKind::as_it_is;   // on their way to ranks that add them
  CodecKind sums = CodecKind::as_it_is;  // of groups of ranks, on their way to the owner of a part
};

// The parameters of a layer as one flat range, which is reduced, sharded, gathered and updated as a whole. Of a layer
// that a pipeline cuts, each part has a unit. Frozen parameters of a layer are a unit of their own (separate_frozen()).
struct Unit {
  std::string name{};
  int first_sublayer = 0, sublayers = 1;  // in the whole model
  std::vector<int> parameters{};
  // The ranks that have the same parameters: they add their gradients, and each owns a slice of the unit.
  Axes axes = kStateAxes;
  int64_t elements = 0;  // padded to a multiple of those ranks (set by the layout)
  bool frozen = false;   // all parameters are: they are held and gathered, nothing else
  BlockFormat blocks = BlockFormat::none;  // of all parameters; not none: elements are bytes
  UnitSpaces spaces{};                     // set by the layout
  UnitCodecs codecs{};                     // set by the layout
  UnitBuffers buffers{};
};

}  // namespace dstrain
