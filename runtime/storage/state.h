// The register of mutable state: all values that training changes, by name, each with its global shape and the
// slice that this rank holds. Weight files and checkpoints read and write through this register alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/weight_map.h"
#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/core/devices/device.h"
#include "runtime/core/error.h"
#include "runtime/core/tensor.h"
#include "runtime/ir/tensor_part.h"
#include "runtime/ir/units/buffer.h"

namespace dstrain {

// The slots of what codecs keep begin so. A checkpoint without such a tensor is loaded all the same: its values stay as
// they are. One that is not part of the run any more is left out.
inline constexpr std::string_view kCodecSlots = "codec.";

// One entry of the register: the slice of a tensor that this rank holds. It consists of elements [begin,
// begin + local.elements()) of `name`/`slot`, row-major; or of this rank's part of that tensor, as it lies in memory, with
// padding, where a tensor group divides it.
struct StateEntry {
  std::string name = {};  // parameter name, or "trainer" for scalars
  std::string slot = {};  // "master", "exp_avg", "exp_avg_sq", "momentum", or a scalar's name
  Shape global_shape = {};
  DType dtype = DType::f32;
  int64_t begin = 0;
  Tensor local = {};     // one-dimensional view of the live bytes
  TensorPart part = {};  // nothing: the slice is one of the whole tensor
  // The first dimension of the shape is the data-parallel ranks, each of which holds a row of its own. If the
  // checkpoint has rows of another number of ranks they are added up: rank r of M gets the sum of rows r, r + M, ...
  bool per_rank = false;
  bool mean = false;  // ... or averaged: each rank gets the mean of all rows
  // Groups of ranks have values of their own: the checkpoint's tensor has a first dimension of `copies`, of which this
  // entry is row `copy`. A checkpoint without that dimension is loaded too; of another number of rows their mean is.
  int64_t copies = 1, copy = 0;
  bool owner = true;                   // this rank writes the slice to files; false for replicas
  RemoteMemory* device = nullptr;      // that has the memory of `local`; null: the host
  BufferId buffer = kNone;             // of the rank's plan, which has `local` or is it
  std::vector<WeightPart> parts = {};  // what it is in weight files; empty: the tensor of its name
  // Not none: `local` is bytes, packed groups of elements of a weight, whose shape is `global_shape`; `begin` is the first
  // of these elements.
  BlockFormat blocks = BlockFormat::none;
};

// Returns the shape of an entry's tensor in a checkpoint.
inline Shape saved_shape(const StateEntry& entry) {
  if (entry.copies == 1) return entry.global_shape;
  Shape shape{entry.copies};
  for (int i = 0; i < entry.global_shape.rank; ++i) shape.append(entry.global_shape[i]);
  return shape;
}
// Returns where in that tensor the values of an entry begin.
inline int64_t saved_begin(const StateEntry& entry) {
  return entry.copy * entry.global_shape.elements() + entry.begin;
}

// Returns how many elements of its part's memory, or of the whole tensor, there are for the slices of an entry. Throws
// InternalError if a part is of what ranks of a tensor group cannot divide: copies, a row of each rank, packed blocks.
inline int64_t elements_held(const StateEntry& entry) {
  check(entry.part.by == TensorPart::By::nothing ||
            (entry.copies == 1 && !entry.per_rank && entry.blocks == BlockFormat::none),
        "{}/{} is a part of a tensor and of copies, rows of ranks or packed blocks", entry.name,
        entry.slot);
  return held_elements(entry.part, entry.global_shape);
}

using StateRegister = std::vector<StateEntry>;

}  // namespace dstrain
